"""`hfc diff`: the settings that differ, and the first rows that do."""

import csv
import json

import pytest
from click.testing import CliRunner

from avalanche_hfc.lab.cli.look import diff as command
from avalanche_hfc.lab.cli.look import in_words, rounded
from avalanche_hfc.lab.read import FirstDifference, diff_runs

TRAIN = [
    {"step": s, "phase": p, "epoch": e, "lr": 0.1, "images_per_second": 7, "digest": f"{s}{p}{e}"}
    for s in range(2)
    for p in ("train", "tune")
    for e in range(2)
]
STEPS = [{"step": s, "accuracy": 0.5 - s / 10, "seconds": 3} for s in range(2)]


def write(folder, *, train=TRAIN, steps=STEPS, seed=0, epochs=2):
    folder.mkdir()
    recipe = {"name": "x", "train": {"epochs": epochs, "lr": 0.1}, "sources": {"train.lr": "ours"}}
    note = {"recipe": recipe, "seed": seed, "versions": {"torch": "2"}, "machine": "this"}
    (folder / "recipe.json").write_text(json.dumps(note))
    for name, rows in (("train", train), ("steps", steps)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    return folder


def test_equal_runs_agree_whatever_their_times(tmp_path):
    slower = (
        [{**row, "images_per_second": 1} for row in TRAIN],
        [{**row, "seconds": 9} for row in STEPS],
    )
    found = diff_runs(
        write(tmp_path / "a"), write(tmp_path / "b", train=slower[0], steps=slower[1])
    )
    assert found.same and found.changed == () and found.num_alike == 10


def test_the_first_epoch_whose_weights_differ_is_named_with_the_settings(tmp_path):
    train = [dict(row) for row in TRAIN]
    for row in train[5:]:
        row["digest"] += "!"
    found = diff_runs(write(tmp_path / "a"), write(tmp_path / "b", train=train, epochs=3, seed=1))
    assert found.changed == (("train.epochs", "2", "3"), ("seed", "0", "1"))
    assert found.differences == (
        FirstDifference(
            "train", "step 1, phase train, epoch 1", (("digest", "1train1", "1train1!"),)
        ),
    )
    assert found.num_alike == 5 + 2


def test_a_run_that_is_shorter_parts_where_it_ends(tmp_path):
    found = diff_runs(
        write(tmp_path / "a"), write(tmp_path / "b", train=TRAIN[:3], steps=STEPS[:1])
    )
    assert [(p.file, p.where, p.columns[0][0]) for p in found.differences] == [
        ("train", "step 0, phase tune, epoch 1", "the second run has no such row"),
        ("steps", "step 1", "the second run has no such row"),
    ]


def test_the_command_says_where_and_ends_with_1_if_they_part(tmp_path):
    a, b = (
        write(tmp_path / "a"),
        write(tmp_path / "b", steps=[STEPS[0], {**STEPS[1], "accuracy": 0.1}]),
    )
    same = CliRunner().invoke(command, [str(a), str(a)])
    assert same.exit_code == 0 and "agree in all 10 rows" in same.output
    apart = CliRunner().invoke(command, [str(a), str(b)])
    assert (
        apart.exit_code == 1
        and "step 1" in apart.output
        and "accuracy: 0.4 and 0.1" in apart.output
    )
    missing = CliRunner().invoke(command, [str(a), str(tmp_path / "none")])
    assert isinstance(missing.exception, FileNotFoundError)
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        diff_runs(tmp_path, a)


def test_numbers_are_rounded_as_far_as_they_still_differ_and_columns_are_words():
    assert rounded("0.123456789", "0.223456789") == ("0.1235", "0.2235")
    assert rounded("0.123456789", "0.123456111") == ("0.123457", "0.123456")
    assert rounded("cosine", "") == ("cosine", "nothing")
    assert rounded("", "0.02517874874979436") == ("nothing", "0.02518")
    assert rounded("123456789", "") == ("123456789", "nothing")
    assert rounded("1", "1.0") == ("1", "1.0")
    assert in_words("lr") == "learning rate" and in_words("weight_spread") == "weight spread"
