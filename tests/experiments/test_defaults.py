"""No script writes into experiments/results unless it is told to."""

import argparse
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
SCRIPTS = sorted([*(ROOT / "experiments").rglob("*.py")])
WITH_OPTIONS = [
    path
    for path in SCRIPTS
    if any(
        word in path.read_text() for word in ("ArgumentParser(", "parser_of(", "from tune import")
    )
]


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def in_results(value):
    path = (ROOT / value).resolve()
    return path == RESULTS or RESULTS in path.parents


class Asked(Exception):
    pass


def options_of(path, monkeypatch):
    """The parser that a script's main builds; nothing behind it runs."""

    def stop(parser, *arguments, **named):
        raise Asked(parser)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    spec = importlib.util.spec_from_file_location(f"asked_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(Asked) as asked:
        module.arguments_of([]) if hasattr(module, "arguments_of") else module.main()
    return asked.value.args[0]._actions


@pytest.mark.parametrize("path", WITH_OPTIONS, ids=name_of)
def test_no_default_of_a_script_lies_in_the_folder_of_results(path, monkeypatch):
    paths = {
        action.dest: action.default
        for action in options_of(path, monkeypatch)
        if isinstance(action.default, Path)
    }
    assert [name for name, default in paths.items() if in_results(default)] == []
    # where it writes; one that must be told has no default
    assert list(paths) in (["out"], ["out", "runs"], ["runs"], ["runs", "collected"], ["again"], [])
