"""CONTRIBUTING.md: who follows its six steps has a method that is tested and runs."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
from pages import CONTRIBUTING, FENCE, ROOT, section

TEXT = CONTRIBUTING.read_text()
STEPS = section(TEXT, "## Add a method in six steps")
HFC = "import sys; sys.argv[0] = 'hfc'; from avalanche_hfc.lab.cli import main; main()"


@pytest.fixture
def checkout(tmp_path):
    """A copy of the project that may be changed."""
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("avalanche_hfc", "tests", "docs", "experiments"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def added(text, change):
    """A text with the lines of a change that begin with +, each after the line before it."""
    lines, place = text.splitlines(), 0
    for line in change.splitlines():
        if line.startswith("+"):
            lines.insert(place, line[1:])
        else:
            assert line[1:] in lines[place:], f"no line {line[1:]!r} from line {place} on"
            place = lines.index(line[1:], place)
        place += 1
    return "\n".join(lines) + "\n"


def test_a_change_goes_after_its_line():
    assert added("a\nb\na\n", " b\n+c\n a\n+d") == "a\nb\nc\na\nd\n"
    with pytest.raises(AssertionError, match="no line 'a'"):
        added("a\nb\n", " b\n a\n+d")


def run(line, folder):
    command, *words = shlex.split(line)
    start = {
        "hfc": ["-c", HFC],
        "pytest": ["-m", "pytest", "-p", "no:cacheprovider"],
        "python": [],
    }[command]
    return subprocess.run(
        [sys.executable, *start, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
    )


def test_a_method_is_added_by_following_the_six_steps(checkout):
    assert re.findall(r"^### (\d)\.", STEPS, re.MULTILINE) == list("123456")
    commands = []
    for language, title, code in FENCE.findall(STEPS):
        if language == "python":
            (checkout / title).write_text(code)
        elif language == "diff":
            changed = added((checkout / title).read_text(), code)
            (checkout / title).write_text(changed)
        else:
            for line in code.splitlines():
                result = run(line, checkout)
                assert result.returncode == 0, line + result.stdout[-2000:] + result.stderr[-2000:]
                commands.append(line.split()[0])
    assert commands == ["pytest", "pytest", "hfc", "python"]
    assert "`focal-replay`: The loss of Lin" in (checkout / "docs" / "fidelity.md").read_text()
    assert "focal-replay" not in (ROOT / "avalanche_hfc/strategies/__init__.py").read_text()
    rows = (checkout / "runs/digits-b0-t5-focal-replay@demo/0/steps.csv").read_text()
    assert len(rows.splitlines()) == 6


def test_every_target_that_the_page_names_is_in_the_makefile():
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"^\| `make ([\w-]+)`", TEXT, re.MULTILINE)
    assert named and [name for name in named if name not in targets] == []
