"""The README: short, its snippets are files that run, its commands work, its links lead somewhere."""

import ast
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from pages import EXAMPLES, PAGES, README, ROOT, code_blocks, name_of, section
from PIL import Image

from avalanche_hfc.lab.cli import commands as hfc

TEXT = README.read_text()
CLASSES = "ant bee cat dog emu fox gnu hen ibis jay koala newt".split()


def test_the_readme_has_at_most_eight_kilobytes():
    assert README.stat().st_size <= 8000


def test_every_python_block_is_an_example():
    files = {path.read_text(): path.stem for path in EXAMPLES}
    assert [files.get(code) for _, code in code_blocks(TEXT, "python")] == [
        "ten_lines",
        "training_loop",
    ]


def test_the_ten_lines_are_ten_statements():
    tree = ast.parse((ROOT / "examples" / "ten_lines.py").read_text())
    assert len([node for node in ast.walk(tree) if isinstance(node, ast.stmt)]) == 10


def commands(text):
    return [line.split()[1:] for line in text.splitlines() if line.startswith("hfc ")]


def photograph(path, hue):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("HSV", (20, 20), (hue, 200, 200)).convert("RGB").save(path)


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """What the commands ask for: class folders, an image, and classes to add."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(CLASSES):
        folder = "photos" if number < 10 else "more_photos"
        for copy in range(6):
            photograph(tmp_path / folder / name / f"{copy}.png", 20 * number + copy)
    photograph(tmp_path / "new.jpg", 3)
    return tmp_path


@pytest.mark.usefixtures("small_weights")
def test_your_photos_takes_five_commands_that_work_as_they_stand(photos):
    five = commands(section(TEXT, "## Your photos in five commands"))
    assert [words[0] for words in five] == ["data", "run", "report", "predict", "learn"]
    run = five[1]
    run[run.index("--epochs") + 1] = "1"  # ten would take a minute
    printed = [
        CliRunner().invoke(hfc, words, catch_exceptions=False, standalone_mode=False).stdout
        for words in five
    ]
    named = [word for word in re.findall(r"[a-z]+", printed[3]) if word in CLASSES[:10]]
    assert len(set(named)) == 3  # --top 3
    assert "<svg" in (photos / "report" / "report.html").read_text()
    learned = [
        path for path in (photos / "runs").rglob("classes.csv") if "newt" in path.read_text()
    ]
    assert len(learned) == 1


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_of_a_page_leads_to_a_file(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not Path(page.parent / link).exists()] == []
