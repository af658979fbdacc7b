"""From the rows of a run to what a report says of it."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from synthetic_runs import write_run, write_runs

from avalanche_hfc.lab.read import RunData, group_runs, read_runs, shared_name
from avalanche_hfc.lab.schema import PretrainRecipe
from avalanche_hfc.report.numbers import (
    class_table,
    confusion_shares,
    falls,
    measures,
    over_epochs,
    over_seeds,
    per_step,
    predicted_as,
    predicts_by_means,
    shared_class_table,
)
from avalanche_hfc.report.sections import duration


def run(steps=None, classes=None, confusion=None, train=None, seed=0):
    frames = [
        None if rows is None else pd.DataFrame(rows) for rows in (steps, classes, confusion, train)
    ]
    return RunData(
        Path("x"),
        {"name": "x"},
        seed,
        {},
        "",
        True,
        frames[0],
        frames[1],
        frames[2],
        None,
        frames[3],
    )


STEPS = {
    "step": [1, 0],
    "classes": [4, 2],
    "accuracy": [0.6, 1.0],
    "average": [0.8, 1.0],
    "accuracy_nme": [0.7, 1.0],
    "forgetting": [0.3, math.nan],
    "fh": [0.03, 0.01],
    "seconds": [5.0, 3.0],
}
CLASSES = {
    "step": [0, 0, 1, 1, 1, 2, 2, 2],
    "class": [7, 2, 7, 2, 5, 7, 2, 5],
    "name": ["g", "b", "g", "b", "e", "g", "b", "e"],
    "brought_in": [0, 0, 0, 0, 1, 0, 0, 1],
    "correct": [10, 8, 5, 8, 9, 4, 2, 9],
    "total": [10] * 8,
}


def test_average_is_the_mean_over_steps_and_last_the_last_step_whatever_the_order_of_the_rows():
    expected = {
        "average": 0.8,
        "last": 0.6,
        "last_nme": 0.7,
        "forgetting": 0.3,
        "fh": 0.02,
        "seconds": 8.0,
    }
    assert measures(run(STEPS).steps) == pytest.approx(expected)


def test_over_seeds_is_mean_and_sample_deviation():
    better = replace(run(STEPS, seed=1), steps=pd.DataFrame({**STEPS, "average": [0.9, 1.0]}))
    group = group_runs([run(STEPS), better])[0]
    own = over_seeds(group).loc["average"]
    assert own.tolist() == pytest.approx([0.85, math.sqrt(2 * 0.05**2), 2])
    assert math.isnan(over_seeds(group_runs([run(STEPS)])[0]).loc["average", "std"])


def test_a_step_is_averaged_over_the_seeds_that_have_it():
    points = per_step(
        [run(STEPS), run({"step": [0], "classes": [2], "accuracy": [0.5]}, seed=1)], "accuracy"
    )
    assert points["mean"].tolist() == [0.75, 0.6] and points["num_seeds"].tolist() == [2, 1]
    assert per_step([run({"step": [0], "classes": [2], "accuracy": [0.5]})], "fh").empty


def test_classes_stand_in_the_order_of_arrival_and_are_empty_before():
    table = class_table(run(STEPS, CLASSES))
    assert [(brought_in, name) for brought_in, _, name in table.index] == [
        (0, "b"),
        (0, "g"),
        (1, "e"),
    ]
    assert table.loc[(0, 7, "g")].tolist() == [1.0, 0.5, 0.4]
    assert math.isnan(table.loc[(1, 5, "e"), 0]) and table.loc[(1, 5, "e"), 2] == 0.9


def test_the_counts_shown_are_those_of_the_classifier_that_the_accuracy_is_of():
    by_means = {**CLASSES, "correct_nme": [9, 9, 6, 6, 6, 5, 5, 5]}
    accuracies = {"step": [0, 1, 2], "classes": [2, 3, 3], "accuracy": [0.9, 0.6, 0.5]}
    assert predicts_by_means(run(accuracies, by_means))
    assert class_table(run(accuracies, by_means)).loc[(0, 7, "g")].tolist() == [0.9, 0.6, 0.5]
    assert not predicts_by_means(run({**accuracies, "accuracy": [0.9, 22 / 30, 0.5]}, by_means))
    assert not predicts_by_means(run(accuracies, CLASSES))


def test_the_fastest_fall_is_the_largest_per_step_since_the_latest_best():
    fell = falls(class_table(run(STEPS, CLASSES))).set_index("name")
    assert list(fell.index) == ["b", "g"]
    assert fell.loc["b", ["best", "best_step", "last"]].tolist() == [0.8, 1, 0.2]
    assert fell["fall"].tolist() == pytest.approx([0.6, 0.6]) and fell[
        "fall_per_step"
    ].tolist() == pytest.approx([0.6, 0.3])


def test_what_a_class_is_predicted_as_is_a_share_of_all_its_images_over_the_seeds():
    rows = {
        "step": [2, 2, 2, 2, 2, 1],
        "class": [7, 7, 7, 2, 5, 7],
        "predicted": [7, 2, 5, 2, 5, 2],
        "count": [4, 5, 1, 9, 9, 9],
    }
    again = {**rows, "count": [6, 1, 3, 9, 9, 9]}
    shares = confusion_shares([run(STEPS, CLASSES, rows), run(STEPS, CLASSES, again, seed=1)], 2)
    assert predicted_as(shares, 7) == [("b", 0.3), ("e", 0.2)]
    assert predicted_as(shares, 7, most=1) == [("b", 0.3)] and predicted_as(shares, 2) == []


def test_a_time_is_told_in_the_unit_of_a_reader():
    times = [duration(seconds) for seconds in (7.4, 300.0, 9000.0, math.nan)]
    assert times == ["7 s", "5 min", "2.5 h", "–"]


def test_seeds_with_another_class_order_are_not_averaged_into_the_map():
    other = {**CLASSES, "class": [5, 2, 5, 2, 7, 5, 2, 7], "name": list("ebebgebg")}
    again = {**CLASSES, "correct": [0, 8, 5, 8, 9, 4, 2, 9]}
    table, seeds = shared_class_table(
        [run(STEPS, CLASSES), run(STEPS, other, seed=1), run(STEPS, again, seed=2)]
    )
    assert seeds == [0, 2] and table.loc[(0, 7, "g"), 0] == 0.5


def test_epochs_are_counted_through_the_run_and_averaged_over_seeds():
    rows = {"step": [0, 0, 1], "epoch": [0, 1, 0], "loss_total": [3.0, 2.0, 1.0]}
    points = over_epochs(
        [run(STEPS, train=rows), run(STEPS, train={**rows, "loss_total": [5.0, 2.0, 1.0]}, seed=1)],
        "loss_total",
    )
    assert (
        points["mean"].tolist() == [4.0, 2.0, 1.0]
        and points["step"].tolist() == [0, 0, 1]
        and list(points.index) == [0, 1, 2]
    )


def test_a_folder_of_run_folders_stands_for_all_in_it_by_seed(tmp_path):
    write_runs(tmp_path, methods=["hfc"], seeds=[0, 10, 9], num_steps=2)
    runs, waiting = read_runs([tmp_path])
    assert [own.seed for own in runs] == [0, 9, 10] and waiting == []
    assert [own.seed for own in read_runs([tmp_path / "hfc", tmp_path / "hfc" / "9"])[0]] == [
        0,
        9,
        10,
    ]
    (tmp_path / "demo").mkdir()
    (tmp_path / "hfc").rename(tmp_path / "demo" / "runs")
    assert len(read_runs([tmp_path])[0]) == 3


def test_a_folder_that_is_no_run_folder_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty is not a run folder: neither it nor a folder"):
        read_runs([tmp_path / "empty"])
    with pytest.raises(FileNotFoundError, match="nowhere: no such folder"):
        read_runs([tmp_path / "nowhere"])
    (tmp_path / "empty" / "recipe.json").write_text("[1")
    with pytest.raises(ValueError, match=r"recipe\.json is not the recipe of a run"):
        read_runs([tmp_path / "empty"])
    bad = write_run(tmp_path / "bad", num_steps=2)
    (bad / "steps.csv").write_text("method,step,classes,accuracy\nhfc,0,2,1\n")
    with pytest.raises(ValueError, match="bad holds the rows of several runs, not one run"):
        read_runs([bad])
    (bad / "steps.csv").write_text("step,loss\n0,1\n")
    with pytest.raises(ValueError, match=r"steps\.csv has no column classes, accuracy"):
        read_runs([bad])


def test_a_run_without_a_finished_step_waits_and_alone_is_told(tmp_path):
    begun = write_run(tmp_path / "begun", num_steps=2)
    (begun / "steps.csv").write_text("step,classes,accuracy\n")
    with pytest.raises(ValueError, match="No finished step in .*begun"):
        read_runs([begun])
    runs, waiting = read_runs([begun, write_run(tmp_path / "done", num_steps=2)])
    assert len(runs) == 1 and waiting == [begun]


def test_a_row_cut_short_by_a_kill_is_no_row(tmp_path):
    cut = write_run(tmp_path / "cut", num_steps=3)
    text = (cut / "steps.csv").read_text()
    (cut / "steps.csv").write_text(text[:-20])
    assert read_runs([cut])[0][0].steps["step"].tolist() == [0, 1]


def test_one_seed_twice_is_refused_and_recipes_that_differ_are_told_apart(tmp_path):
    first = write_run(tmp_path / "a", num_steps=2)
    shutil.copytree(first, tmp_path / "b")
    with pytest.raises(ValueError, match=r"a and .*b are the same recipe and seed 0"):
        group_runs(read_runs([first, tmp_path / "b"])[0])
    held = json.loads((tmp_path / "b" / "recipe.json").read_text())
    held["recipe"]["train"]["epochs"] = 3
    (tmp_path / "b" / "recipe.json").write_text(json.dumps(held))
    labels = [group.label for group in group_runs(read_runs([first, tmp_path / "b"])[0])]
    assert [label.split("(")[1] for label in labels] == ["train.epochs 6)", "train.epochs 3)"]


def test_a_pre_training_among_runs_is_no_run_and_alone_it_is_refused(tmp_path):
    (path,) = write_runs(tmp_path, methods=["hfc"], seeds=[0], num_steps=2)
    (tmp_path / "pretrained").mkdir()
    note = {"recipe": PretrainRecipe().as_dict(), "seed": 0}
    (tmp_path / "pretrained" / "recipe.json").write_text(json.dumps(note))
    runs, waiting = read_runs([tmp_path])
    assert [run.path for run in runs] == [path] and waiting == []
    shutil.rmtree(path)
    for folder in (tmp_path, tmp_path / "pretrained"):
        with pytest.raises(
            ValueError, match="pretrained is a pre-training run, not a training run"
        ):
            read_runs([folder])


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        (
            ["cifar100-b0-t10-hfc@paper", "cifar100-b0-t10-herding-replay@paper"],
            ("cifar100-b0-t10-", "@paper"),
        ),
        (["cifar100-b0-t10-hfc@paper", "cifar100-b0-t10-hfc@small"], ("cifar100-b0-t10-", "")),
        (["digits-hfc", "cifar100-hfc"], ("", "")),
        (["a-b", "a-b-c"], ("a-", "")),
        (["npz-b0-t5-hfc-paper@small", "npz-b0-t5-hfc-official@small"], ("npz-b0-t5-", "@small")),
        (["npz-b0-t5-m7-avalanche-lwf", "npz-b0-t5-m7-avalanche-der"], ("npz-b0-t5-m7-", "")),
        (["a-b@x"], ("", "")),
    ],
)
def test_labels_leave_out_what_all_names_share(names, shared):
    assert shared_name(names) == shared
