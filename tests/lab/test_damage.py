"""Damaged files of a run folder: each is noticed by its checksum or its types, and told in one line
that names the file, by the training and by every reader.
"""

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import pytest
import torch
from tiny_runs import rows_of, tiny_run

from avalanche_hfc.lab.checkpoint import load_checkpoint, read_checkpoint, save_checkpoint
from avalanche_hfc.lab.progress import Progress
from avalanche_hfc.lab.read import diff_runs, read_runs
from avalanche_hfc.lab.rows import Damaged, note_text
from avalanche_hfc.lab.run_folder import RunFolder


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "tiny-hfc" / "0"
    tiny_run(folder)
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "run"))


def changed_digit(path):
    """The first digit of the file's second line is another."""
    header, line, *rest = path.read_text().splitlines(keepends=True)
    place = next(i for i, sign in enumerate(line) if sign.isdigit() and sign != "0")
    line = f"{line[:place]}{(int(line[place]) + 1) % 10}{line[place + 1 :]}"
    path.write_text("".join([header, line, *rest]))


def unfinished(folder):
    note = json.loads((folder / "recipe.json").read_text())
    note.pop("finished")
    (folder / "recipe.json").write_text(json.dumps(note))


@pytest.mark.parametrize("name", ["steps", "classes", "confusion", "exemplars", "train"])
def test_a_changed_digit_is_noticed_by_readers_and_by_the_training(copied, finished, name):
    path = copied / f"{name}.csv"
    changed_digit(path)
    with pytest.raises(ValueError, match=f"{name}.csv is damaged.*by their checksum"):
        read_runs([copied])
    if name != "exemplars":
        with pytest.raises(ValueError, match=f"{name}.csv is damaged"):
            diff_runs(finished, copied)
    unfinished(copied)
    before = {file: file.read_bytes() for file in copied.rglob("*.*")}
    with pytest.raises(ValueError, match=f"{name}.csv are not what was written"):
        tiny_run(copied)
    after = {file: file.read_bytes() for file in copied.rglob("*.*")}
    assert after | {copied / "log.txt": b""} == before | {copied / "log.txt": b""}


def test_any_flipped_bit_of_a_note_is_refused_or_changes_nothing(tmp_path):
    draw = random.Random(0)
    save_checkpoint(tmp_path, {"weights": torch.zeros(9)}, {"step": 1, "rows": {"train": 3}})
    path = tmp_path / "last" / "note.json"
    whole = path.read_bytes()
    expected, refused = read_checkpoint(tmp_path / "last").note, 0
    for _ in range(300):
        content = bytearray(whole)
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
        try:
            found = read_checkpoint(tmp_path / "last").note
        except Damaged:
            refused += 1
        else:
            assert {name: found.get(name) for name in expected} == expected
    assert refused > 200


def test_a_state_that_is_none_gives_way_to_the_one_before(tmp_path):
    """Even where its checksum is right."""
    for step in range(2):
        save_checkpoint(tmp_path, {"weights": torch.zeros(9)}, {"step": step})
    content = b"no zip, no pickle"
    (tmp_path / "last" / "state.pt").write_bytes(content)
    note = tmp_path / "last" / "note.json"
    held = json.loads(note.read_text())
    held |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    held.pop("note_sha256")
    note.write_text(note_text(held))
    with pytest.warns(UserWarning, match="cannot be used: .*The one before is used"):
        assert load_checkpoint(tmp_path, lambda note: None).note["step"] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", "zero"), ("seed", True), ("recipe", []), ("versions", "2"), ("machine", {})],
)
def test_a_wrong_type_in_recipe_json_is_named(copied, name, value):
    note = json.loads((copied / "recipe.json").read_text())
    (copied / "recipe.json").write_text(json.dumps(note | {name: value}))
    for read in (tiny_run, lambda folder: read_runs([folder]), lambda f: RunFolder(f).metadata()):
        with pytest.raises(ValueError, match=f"recipe.json is damaged: {name} must be a"):
            read(copied)


def test_a_class_that_does_not_exist_is_named(copied):
    """Of a method without checkpoints: else their checksums tell."""
    shutil.rmtree(copied / "checkpoint")
    with (copied / "confusion.csv").open("a") as file:
        file.write("2,77,0,1\n")
    with pytest.raises(ValueError, match="confusion.csv is damaged: class 77 is not in classes"):
        read_runs([copied])


def test_bytes_that_are_no_text_are_named(copied):
    (copied / "steps.csv").write_bytes(b"step,accuracy\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match="steps.csv is damaged: it is not UTF-8"):
        read_runs([copied])


def test_rows_without_a_checkpoint_are_told_before_they_are_dropped(copied, finished):
    class Told(Progress):
        def remark(self, line):
            rows.append((line, (copied / "steps.csv").read_text().count("\n")))

    rows = []
    unfinished(copied)
    shutil.rmtree(copied / "checkpoint")
    tiny_run(copied, progress=Told())
    line, count = rows[0]
    assert "has rows but no checkpoint" in line and count == 4
    assert rows_of(copied) == rows_of(finished)


# The lock


def test_a_link_in_the_place_of_the_lock_is_refused_and_not_followed(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").symlink_to(tmp_path / "mine.txt")
    with pytest.raises(ValueError, match="lock must be a file or a folder, not a link"):
        tiny_run(tmp_path / "run")
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_a_pipe_in_the_place_of_the_lock_is_refused(tmp_path):
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(ValueError, match="lock must be a file"):
        tiny_run(tmp_path)


def test_a_run_whose_lock_was_replaced_stops_before_it_saves(tmp_path):
    class Thief(Progress):
        def batch(self, fraction):
            (tmp_path / "lock").unlink(missing_ok=True)
            (tmp_path / "lock").write_text("1\n")

    with pytest.raises(ValueError, match="lock was removed or replaced"):
        tiny_run(tmp_path, progress=Thief())
    assert not (tmp_path / "checkpoint").exists()
    assert (tmp_path / "lock").read_text() == "1\n"  # that of the other process stays


@pytest.mark.parametrize(
    "name", ["recipe.json.new", "steps.csv", "log.txt", "tensorboard", "checkpoint"]
)
def test_a_folder_with_links_is_refused_and_nothing_of_the_user_s_is_written(
    copied, tmp_path, name
):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / ".bashrc").write_text("keep")
    place = copied / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.symlink_to(mine if name in ("tensorboard", "checkpoint") else mine / ".bashrc")
    with pytest.raises(ValueError, match=f"{name} must be a file or a folder, not a link"):
        tiny_run(copied)
    assert [path.name for path in mine.iterdir()] == [".bashrc"]
    assert (mine / ".bashrc").read_text() == "keep"


@pytest.mark.parametrize("old, new", [('"epochs": 2', '"epochs": 3'), ('"seed": 0', '"seed": 1')])
def test_one_changed_digit_of_recipe_json_is_noticed_before_anything_is_trained(copied, old, new):
    text = (copied / "recipe.json").read_text()
    assert old in text
    (copied / "recipe.json").write_text(text.replace(old, new))
    with pytest.raises(ValueError, match="recipe and seed are not what was written"):
        RunFolder(copied).metadata()


def test_a_run_whose_folder_was_moved_while_it_trains_writes_no_further_row(tmp_path):
    class Mover(Progress):
        def epoch(self, row):
            if row["step"] == 1 and (tmp_path / "run").exists():
                (tmp_path / "run").rename(tmp_path / "moved")
                (tmp_path / "run").mkdir()
                (tmp_path / "run" / "theirs").touch()

    with pytest.raises(ValueError, match="lock was removed or replaced"):
        tiny_run(tmp_path / "run", progress=Mover())
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["theirs"]
    assert (tmp_path / "moved" / "train.csv").read_text().count("\n") == 1 + 3
