"""The folder of a command's results: what it was made with, what is in it. No torch: a mistake is told before anything is loaded."""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from avalanche_hfc._version import __version__
from avalanche_hfc.recipes import DemoRecipe
from avalanche_hfc.runs.machine import cpu
from avalanche_hfc.runs.rows import replace_file


def keep_recipe(path: Path, recipe: DemoRecipe, *, way_out: str) -> dict[str, Any]:
    """What recipe.json holds; it is written where the folder has none. Refuses rows of another recipe, and rows of unknown origin."""
    note = path / "recipe.json"
    if not note.exists():
        if (path / "steps.csv").exists():
            raise ValueError(f"{path} has a steps.csv but no recipe.json to say what it is of. {way_out}")
        replace_file(note, as_json({"recipe": recipe.as_dict()}))
    held = json.loads(note.read_text())
    changed = changes(held["recipe"], recipe.as_dict())
    if changed:
        raise ValueError(f"{path} was made with other settings ({changed}). {way_out}")
    return held


def note_command(path: Path, command: str, processes: int) -> str:
    """Add to recipe.json what trains from here on: command, versions, machine. In words, what differs from the call before; else empty.

    A command that is called again on the same machine with the same versions is noted once.
    """
    note = path / "recipe.json"
    held = json.loads(note.read_text())
    calls: list[dict[str, Any]] = held.get("commands", [])
    now: dict[str, Any] = {"command": command, "versions": versions(), "machine": cpu(), "processes": processes, "threads": 1}
    if now not in calls:
        replace_file(note, as_json({**held, "commands": [*calls, now]}))
    before = calls[-1] if calls else now
    return changes(*({**call["versions"], "machine": call["machine"]} for call in (before, now)))


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The settings that differ, with both values; empty where none does."""
    names = [*now, *(name for name in before if name not in now)]
    return "; ".join(f"{name} {before.get(name)}, now {now.get(name)}" for name in names if before.get(name) != now.get(name))


def as_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def versions() -> dict[str, str]:
    found = {name: version(name) for name in ("torch", "torchvision", "avalanche-lib", "timm", "numpy")}
    return found | {"avalanche_hfc": __version__, "python": platform.python_version()}
