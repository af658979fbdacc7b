"""No script writes into experiments/results unless it is told to."""

import argparse
import ast
import importlib.util
import sys
from pathlib import Path

import click
import pytest

from avalanche_hfc.lab.cli import commands

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "experiments" / "results"
SCRIPTS = sorted([*(ROOT / "experiments").rglob("*.py"), ROOT / "tests" / "mutate.py"])
WITH_OPTIONS = [
    path
    for path in SCRIPTS
    if any(
        word in path.read_text() for word in ("ArgumentParser(", "parser_of(", "from tune import")
    )
]


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def strings(tree):
    """(line, text) of every string of a program that is neither a docstring nor part of an
    f-string's message.
    """
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


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


def test_no_script_names_the_folder_of_results():
    assert [
        f"{name_of(path)}:{line}: {text}"
        for path in SCRIPTS
        if path.stem != "fidelity_page"  # it reads them, and writes a page
        for line, text in strings(ast.parse(path.read_text()))
        if "results" in Path(text).parts
    ] == []


PARTS = ("one_command", "controls", "fidelity_page")  # imported by scripts, or without options


def test_the_scripts_with_options_are_these():
    """A new one is looked at here by itself; the other scripts are commands of `hfc`, or parts."""
    known = [
        "experiments/alignment.py",
        "experiments/augmentation.py",
        "experiments/bench.py",
        "experiments/collect.py",
        "experiments/digits_picture.py",
        "experiments/effects.py",
        "experiments/image_size.py",
        "experiments/paper_scale.py",
        "experiments/reproduce.py",
        "experiments/results_page.py",
        "experiments/train_tables.py",
        "experiments/tune.py",
        "experiments/unpack_cifar100.py",
        "experiments/variants.py",
        "tests/mutate.py",
    ]
    assert [name_of(path) for path in WITH_OPTIONS] == known
    others = [path for path in (ROOT / "experiments").glob("*.py") if path not in WITH_OPTIONS]
    assert [
        path.name
        for path in others
        if path.stem not in PARTS and "from one_command import hfc" not in path.read_text()
    ] == []


@pytest.mark.parametrize("path", WITH_OPTIONS, ids=name_of)
def test_no_default_of_a_script_lies_in_the_folder_of_results(path, monkeypatch):
    paths = {
        action.dest: action.default
        for action in options_of(path, monkeypatch)
        if isinstance(action.default, Path)
    }
    assert [name for name, default in paths.items() if in_results(default)] == []
    # where it writes; one that must be told has no default
    assert list(paths) in (["out"], ["out", "runs"], ["runs"], ["runs", "collected"], [])


def test_no_default_of_the_command_lies_in_the_folder_of_results():
    def options(command):
        for inner in getattr(command, "commands", {}).values():
            yield from options(inner)
        yield from (option for option in command.params if isinstance(option.type, click.Path))

    defaults = [
        option.default for option in options(commands) if isinstance(option.default, str | Path)
    ]
    assert (
        Path("demo") in map(Path, defaults)
        and [value for value in defaults if in_results(value)] == []
    )


def test_a_default_in_the_folder_would_be_seen():
    assert (
        in_results("experiments/results/bench.csv")
        and in_results(RESULTS)
        and in_results("experiments/../experiments/results/a/b")
    )
    assert not in_results("bench.csv") and not in_results("experiments/results_of_others")
