"""What a command does with a folder that it was given: code only if allowed, one line for any
error, a damaged copy replaced from its original.
"""

import json
import shutil
import sys

import pandas as pd
import pytest
from image_folders import COLOURS, TINY, content, hfc, make_folder

from avalanche_hfc.lab import recipe
from avalanche_hfc.lab.cli import commands
from avalanche_hfc.lab.run_folder import TIMES

METHOD = """
from avalanche_hfc.strategies import HerdingReplay

class Mine(HerdingReplay):
    pass
"""
NAME = "folder-b0-t2-minemethods:Mine@demo"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """images/, new/, a module with a method, and a run of it in runs/."""
    root = tmp_path_factory.mktemp("trust")
    make_folder(root / "images", list(COLOURS)[:4])
    make_folder(root / "new", list(COLOURS)[4:6])
    (root / "minemethods.py").write_text(METHOD)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr(sys, "path", [path for path in sys.path if path])
        hfc("run", NAME, "--data", root / "images", "--out", root / "runs", *TINY)
        yield root
    recipe.cache_clear()
    sys.modules.pop("minemethods", None)


@pytest.fixture
def run(place, tmp_path):
    return shutil.copytree(place / "runs" / NAME / "0", tmp_path / "0")


def test_a_folder_that_names_code_is_refused_by_every_reader_unless_allowed(place, run):
    image = place / "images" / "ant" / "0.png"
    readers = {
        "predict": ("predict", run, image),
        "learn": ("learn", run, place / "new", "--out", run.parent / "longer"),
        "report": ("report", run, "--pictures", "--out", run.parent / "report"),
    }
    sys.modules.pop("minemethods", None)
    for arguments in readers.values():
        with pytest.raises(ValueError, match="names code, 'minemethods:Mine'.*--allow-code"):
            hfc(*arguments)
    assert "minemethods" not in sys.modules
    hfc("report", run, "--out", run.parent / "report")  # reads rows alone
    assert "minemethods" not in sys.modules
    assert "ant" in hfc(*readers["predict"], "--allow-code")


def test_a_source_file_that_has_changed_is_refused_by_the_run(place, run, tmp_path):
    held = json.loads((run / "recipe.json").read_text())
    held.pop("finished")
    folder = tmp_path / "runs" / NAME / "0"
    shutil.copytree(run, folder)
    (folder / "recipe.json").write_text(json.dumps(held))
    again = ("run", NAME, "--data", place / "images", "--out", tmp_path / "runs", *TINY)
    before = content(folder)
    try:
        (place / "minemethods.py").write_text(METHOD + "# another\n")
        with pytest.raises(ValueError, match="minemethods.py, the source of Mine, is not what"):
            hfc(*again)
        assert content(folder) == before
    finally:
        (place / "minemethods.py").write_text(METHOD)
    hfc(*again)


def rows(folder, name):
    table = pd.read_csv(folder / f"{name}.csv")
    return table.drop(columns=[column for column in table if column in TIMES])


@pytest.mark.parametrize("harm", ["state", "rows"])
def test_a_damaged_copy_is_refused_and_learned_again_once_it_is_moved_away(
    place, run, tmp_path, harm
):
    learn = ("learn", run, place / "new", "--allow-code", "--out")
    hfc(*learn, tmp_path / "whole")
    longer = shutil.copytree(tmp_path / "whole", tmp_path / "longer")
    held = json.loads((longer / "recipe.json").read_text())
    held.pop("finished")
    (longer / "recipe.json").write_text(json.dumps(held))
    if harm == "state":
        for path in (longer / "checkpoint").glob("*/state.pt"):
            path.write_bytes(path.read_bytes()[:-1])
    else:
        text = (longer / "steps.csv").read_text()
        (longer / "steps.csv").write_text(text.replace("0,2,", "0,3,", 1))
    with pytest.raises(ValueError, match="Move it away|Restore the file"):
        hfc(*learn, longer)
    longer.rename(tmp_path / "damaged")
    hfc(*learn, longer)
    assert list(rows(longer, "steps")["classes"]) == [2, 4, 6]
    for name in ("steps", "classes", "confusion", "exemplars", "train"):
        pd.testing.assert_frame_equal(rows(longer, name), rows(tmp_path / "whole", name))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyError("depth"), 1, "hfc: unexpected error, KeyError: 'depth' (The same command with"),
        (ValueError("No such thing."), 2, "hfc: No such thing.\n"),
    ],
)
def test_any_error_is_one_line_and_debug_shows_the_rest(shell, monkeypatch, error, code, said):
    def fail(**options):
        raise error

    monkeypatch.setattr(commands.commands["list"], "callback", fail)
    ended, _, told = shell("list")
    assert ended == code and told.startswith(said) and told.count("\n") == 1
    with pytest.raises(type(error)):
        shell("list", "--debug")
