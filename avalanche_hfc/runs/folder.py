"""The folder of a command's results: what it was made with, what is in it. No torch: a mistake is told before anything is loaded."""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from avalanche_hfc._version import __version__
from avalanche_hfc.recipes import DemoRecipe
from avalanche_hfc.runs.rows import replace_file


def keep_recipe(path: Path, recipe: DemoRecipe, *, way_out: str) -> dict[str, Any]:
    """What recipe.json holds; it is written where the folder has none. Refuses rows of another recipe, and rows of unknown origin."""
    note = path / "recipe.json"
    if not note.exists():
        if (path / "steps.csv").exists():
            raise ValueError(f"{path} has a steps.csv but no recipe.json to say what it is of. {way_out}")
        replace_file(note, as_json(describe(recipe)))
    held = json.loads(note.read_text())
    changed = changes(held["recipe"], recipe.as_dict())
    if changed:
        raise ValueError(f"{path} was made with other settings ({changed}). {way_out}")
    return held


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The settings that differ, with both values; empty where none does."""
    names = [*now, *(name for name in before if name not in now)]
    return "; ".join(f"{name} {before.get(name)}, now {now.get(name)}" for name in names if before.get(name) != now.get(name))


def as_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def describe(recipe: DemoRecipe) -> dict[str, Any]:
    versions = {name: version(name) for name in ("torch", "avalanche-lib", "timm")}
    versions |= {"avalanche_hfc": __version__, "python": platform.python_version()}
    return {"recipe": recipe.as_dict(), "versions": versions, "machine": f"{platform.machine()}, 1 thread"}
