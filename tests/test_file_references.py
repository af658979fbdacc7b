"""No page, docstring or comment refers to a file that does not exist."""

import ast
import importlib.util
import io
import re
import subprocess
import tokenize
from pathlib import Path

import pytest
from pages import CONTRIBUTING, PAGES, ROOT, code_blocks, name_of

SUFFIXES = "py md csv toml json yml cfg txt ipynb css j2 html svg".split()
NAME = re.compile(rf"(?<![\w./<>…-])([\w./-]*\w\.(?:{'|'.join(SUFFIXES)}))(?![\w-]|\.\w)")
TRACKED = [
    Path(line)
    for line in subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    if (ROOT / line).exists()
]
SOURCES = [
    ROOT / path
    for path in TRACKED
    if path.suffix == ".py"
    and path.parts[0] in ("avalanche_hfc", "experiments", "examples", "tests")
]
FIDELITY = ROOT / "docs" / "fidelity.md"
OURS = ("avalanche_hfc/", "tests/", "experiments/", "docs/", "examples/")
WRITTEN = set(  # by a run or a command, or by the user of an example
    "recipe.json steps.csv classes.csv confusion.csv exemplars.csv train.csv log.txt note.json "
    "summary.csv report.html machine.json data.csv trials.csv variants.csv runs.csv "
    "recipes.json mymethods.py runs.txt scale.csv".split()
)
PLACEHOLDER = re.compile(r"(?:.*/)?(?:name\.\w+|\w+_NAME\.\w+|[A-Z]{3,}/.*)")
AVALANCHE = Path(importlib.util.find_spec("avalanche").origin).parent


def written(text):
    """Docstrings and comments of a program, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)


def lines_of(path):
    text = path.read_text()
    return written(text) if path.suffix == ".py" else enumerate(text.splitlines(), 1)


def names(text):
    return NAME.findall(re.sub(r"https?://\S+", "", text))


THEIRS = {  # files of the authors' repositories, as the page of fidelity names them
    form
    for name in names(FIDELITY.read_text())
    if not name.startswith(OURS)
    for form in (name, Path(name).name)
}
FOLLOWED = {title for title, _ in code_blocks(CONTRIBUTING.read_text())}  # written by a reader


def exists(name, path):
    """Below the project, the package, the folder of the text or Avalanche; a bare name anywhere."""
    if name in WRITTEN | THEIRS | FOLLOWED or PLACEHOLDER.fullmatch(name):
        return True
    if "/" not in name:
        return any(tracked.name == name for tracked in TRACKED)
    bases = (ROOT, ROOT / "avalanche_hfc", path.parent, AVALANCHE)
    return any((base / name).exists() for base in bases)


def missing(path):
    return [
        (line, name)
        for line, text in lines_of(path)
        for name in names(text)
        if not exists(name, path)
    ]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_refers_to_files_that_exist(page):
    assert missing(page) == []


def test_docstrings_and_comments_refer_to_files_that_exist():
    assert len(SOURCES) > 200
    assert [(name_of(path), *absent) for path in SOURCES for absent in missing(path)] == []
