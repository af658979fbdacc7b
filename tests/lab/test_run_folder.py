"""What a run leaves in its folder, and whose folder it takes."""

import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from strategy_runs import CLASSES, benchmark_of, mlp
from tiny_runs import TinyRecipe, build, rows_of, tiny_run, weights_of
from torch import nn

from avalanche_hfc.lab import record as recorder_module
from avalanche_hfc.lab.machine import cpu
from avalanche_hfc.lab.record import Saver, WeightSpread, digest
from avalanche_hfc.lab.run import run
from avalanche_hfc.lab.run_folder import RunFolder, RunRows
from avalanche_hfc.plugins.steps import SampleWeights

FILES = ["steps", "classes", "confusion", "exemplars", "train"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "tiny-hfc" / "0"
    tiny_run(folder)
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "run"))


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file()
    }


def tables(folder):
    return [pd.read_csv(folder / f"{name}.csv") for name in FILES]


def refuse_to_build(*args, **kwargs):
    raise AssertionError("nothing is to be built")


# What is in it


def test_the_folder_holds_the_files_of_the_design_and_no_lock(finished):
    parts = [
        f"checkpoint/{name}/{file}"
        for name in ("last", "previous")
        for file in ("note.json", "state.pt")
    ]
    assert sorted(content(finished)) == sorted(
        [*(f"{name}.csv" for name in FILES), "log.txt", "recipe.json", *parts]
    )


def test_pandas_reads_every_file_and_the_columns_are_those_of_the_design(finished):
    found = {name: list(table.columns) for name, table in zip(FILES, tables(finished), strict=True)}
    assert found == {
        "steps": "step classes images accuracy accuracy_nme average forgetting fh seconds "
        "images_per_second peak_memory".split(),
        "classes": "step class name brought_in correct correct_nme total gradient_sum "
        "gradient_square_sum".split(),
        "confusion": "step class predicted count".split(),
        "exemplars": "step class rank position".split(),
        "train": "step phase epoch lr loss_total loss_criterion loss_compensation loss_relation weight_spread alone_fraction accuracy "
        "images_per_second digest".split(),
    }


def test_recipe_json_tells_recipe_seed_versions_machine_and_weights(finished):
    note = json.loads((finished / "recipe.json").read_text())
    assert note["recipe"] == TinyRecipe().as_dict() and note["seed"] == 0
    assert (
        note["versions"]["torch"] == torch.__version__.split("+")[0]
        and note["machine"].startswith(cpu())
        and note["weights"] == "no weights file"
        and note["finished"]
    )


def test_the_numbers_of_a_step_are_those_of_its_classes(finished):
    steps, classes, confusion, _, _ = tables(finished)
    by_step = classes.groupby("step")
    assert list(by_step["class"].apply(list)) == [
        sorted(k for own in CLASSES[: t + 1] for k in own) for t in range(3)
    ]
    assert list(classes["brought_in"]) == [
        next(t for t in range(3) if k in CLASSES[t]) for k in classes["class"]
    ]
    assert set(classes.loc[classes["class"] == 4, "name"]) == {"four, or so"}
    accuracies = list(by_step["correct"].sum() / by_step["total"].sum())
    assert (
        list(steps["accuracy"]) == accuracies
        and list(steps["images"]) == [12, 24, 36]
        and list(steps["classes"]) == [2, 4, 6]
    )
    assert list(steps["average"]) == pytest.approx(
        [sum(accuracies[: t + 1]) / (t + 1) for t in range(3)], rel=1e-12
    )
    assert (
        math.isnan(steps["forgetting"][0])
        and steps["forgetting"][1:].notna().all()
        and list(steps["accuracy_nme"])
        == list(by_step["correct_nme"].sum() / by_step["total"].sum())
    )
    right = confusion[confusion["class"] == confusion["predicted"]].set_index(["step", "class"])[
        "count"
    ]
    assert right.to_dict() == {
        key: n for key, n in classes.set_index(["step", "class"])["correct"].items() if n
    }
    totals = confusion.groupby(["step", "class"])["count"].sum()
    assert totals.to_dict() == classes.set_index(["step", "class"])["total"].to_dict()
    assert (
        (steps["seconds"] > 0).all()
        and (steps["images_per_second"] > 0).all()
        and (steps["peak_memory"] > 1e6).all()
    )


def test_exemplars_are_ranked_positions_of_their_own_class_within_the_budget(finished):
    exemplars = pd.read_csv(finished / "exemplars.csv")
    labels = [y for experience in benchmark_of().train_stream for y in experience.dataset.targets]
    assert [labels[position] for position in exemplars["position"]] == list(exemplars["class"])
    for (step, _), own in exemplars.groupby(["step", "class"]):
        assert list(own["rank"]) == list(range(12 // (2 * step + 2)))[: len(own)] and len(
            own
        ) == min(12 // (2 * step + 2), 6)


def test_train_csv_has_a_row_per_epoch_with_rate_losses_weights_and_digest(finished):
    train = pd.read_csv(finished / "train.csv")
    assert [tuple(row) for row in train[["step", "phase", "epoch"]].values] == [
        (t, "train", e) for t in range(3) for e in range(2)
    ]
    assert train["lr"].tolist() == pytest.approx([3e-3, 3e-3 * 0.75] * 3)
    later = train[train["step"] > 0]
    assert (
        train[train["step"] == 0][["loss_relation", "weight_spread", "alone_fraction"]]
        .isna()
        .all(axis=None)
    )
    total = later["loss_criterion"] + later["loss_compensation"] + later["loss_relation"]
    assert later["loss_total"].tolist() == pytest.approx(total.tolist(), rel=1e-5)
    assert (
        (later["weight_spread"] > 0).all()
        and later["alone_fraction"].between(0, 1).all()
        and train["accuracy"].isna().all()
    )
    assert train["digest"].nunique() == 6 and (train["images_per_second"] > 0).all()
    model = build(TinyRecipe(), 0).strategy.model
    model.load_state_dict(weights_of(finished))
    assert digest(model) == train["digest"].iloc[-1]


def test_every_phase_of_a_method_has_its_rows(tmp_path):
    tiny_run(tmp_path, "foster")
    train = pd.read_csv(tmp_path / "train.csv")
    expected = [(0, "train", 0), (0, "train", 1)]
    expected += [
        (step, phase, epoch)
        for step in (1, 2)
        for phase in ("train", "compress")
        for epoch in (0, 1)
    ]
    assert [tuple(row) for row in train[["step", "phase", "epoch"]].values] == expected
    compress = train[train["phase"] == "compress"]
    assert (
        compress["lr"].tolist() == pytest.approx([3e-3, 1.5e-3] * 2)
        and compress["digest"].nunique() == 4
    )
    assert (
        compress["loss_total"].tolist() == compress["loss_compression"].tolist()
        and compress["weight_spread"].isna().all()
    )
    assert (train[(train["phase"] == "train") & (train["step"] > 0)]["weight_spread"] > 0).all()
    assert (compress["images_per_second"] > 0).all()


def test_the_log_tells_every_step(finished):
    lines = (finished / "log.txt").read_text().splitlines()
    assert [line.split("INFO ")[1].split(":")[0] for line in lines] == [
        "weights",
        "step 0",
        "step 1",
        "step 2",
    ]


# Whose it is


def test_a_finished_run_is_not_run_again(finished):
    before = content(finished)
    tiny_run(finished, build=refuse_to_build)
    assert content(finished) == before and RunFolder(finished).finished


@pytest.mark.parametrize(
    ("recipe", "seed", "said"),
    [
        (TinyRecipe(epochs=3), 0, r"another recipe \(train.epochs 2, now 3\)"),
        (TinyRecipe("icarl"), 0, r"train.method hfc, now icarl"),
        (TinyRecipe(), 1, r"seed 0, now 1"),
    ],
)
def test_a_folder_of_another_recipe_or_seed_is_refused_and_left_alone(finished, recipe, seed, said):
    before = content(finished)
    with pytest.raises(ValueError, match=said):
        run(recipe, seed, finished, build=refuse_to_build)
    assert content(finished) == before


@pytest.mark.parametrize("name", ["steps.csv", "train.csv", "checkpoint"])
def test_rows_of_unknown_origin_are_refused(copied, name):
    for path in copied.iterdir():
        if path.name != name:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = content(copied)
    with pytest.raises(ValueError, match=f"has {name} but no recipe.json"):
        tiny_run(copied, build=refuse_to_build)
    assert content(copied) == before


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"recipe": {}}'])
def test_a_recipe_json_that_is_none_is_refused_and_kept(tmp_path, text):
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(ValueError, match="recipe.json is not the recipe of a run"):
        tiny_run(tmp_path, build=refuse_to_build)
    assert (tmp_path / "recipe.json").read_text() == text


def test_a_run_that_cannot_be_built_leaves_nothing_behind(tmp_path):
    def fail(*args, **kwargs):
        raise FileNotFoundError("No folder data/imagenet")

    with pytest.raises(FileNotFoundError, match="data/imagenet"):
        tiny_run(tmp_path / "runs" / "tiny-hfc" / "0", build=fail)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_a_folder_is_told_before_anything_is_built(tmp_path):
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(OSError, match="runs"):
        tiny_run(tmp_path / "runs" / "0", build=refuse_to_build)


def test_a_disk_without_room_for_the_checkpoints_is_told_at_the_start(tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=100_000))
    with pytest.raises(OSError, match="need about 0.0 GB, 0.0 GB are free"):
        tiny_run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_that_goes_on_under_another_version_says_so(copied):
    note = json.loads((copied / "recipe.json").read_text())
    note.pop("finished")
    note["versions"]["torch"] = "1.0"
    (copied / "recipe.json").write_text(json.dumps(note))
    with pytest.warns(UserWarning, match=r"torch was 1\.0, is .*may differ"):
        tiny_run(copied)
    assert (
        json.loads((copied / "recipe.json").read_text())["versions"]["torch"] == "1.0"
        and RunFolder(copied).finished
    )


# Its parts


def test_the_spread_of_weights_and_the_share_alone_are_those_of_a_loop():
    spread = WeightSpread()
    assert spread.numbers() == {"weight_spread": None, "alone_fraction": None}
    batches = [([1.5, 0.5, 1.0], [0, 0, 1]), ([0.25, 1.75], [0, 0])]
    for weights, steps in batches:
        spread.add(SampleWeights(torch.tensor(weights), torch.tensor(steps)))
        spread.add(None)  # a batch that was not weighed
    mean = sum(w for ws, _ in batches for w in ws) / 5
    deviation = math.sqrt(sum((w - mean) ** 2 for ws, _ in batches for w in ws) / 5)
    assert spread.numbers() == {
        "weight_spread": pytest.approx(deviation, rel=1e-12),
        "alone_fraction": pytest.approx(1 / 5),
    }


def test_a_digest_changes_with_any_bit_name_dtype_or_shape():
    model = mlp("fixed")
    same = digest(model)
    assert same == digest(model) and len(same) == 16
    found = {same}
    with torch.no_grad():
        model[1].bias[3] = torch.nextafter(model[1].bias[3], torch.tensor(9.0))
    found.add(digest(model))
    found.add(digest(nn.Sequential(model)))
    found.add(digest(model.double()))
    found.add(digest(nn.Linear(2, 3, bias=False)))
    zeros = [nn.Linear(2, 3, bias=False), nn.Linear(3, 2, bias=False)]
    for layer in zeros:
        nn.init.zeros_(layer.weight)
    found |= {digest(layer) for layer in zeros}
    assert len(found) == 7


@pytest.mark.parametrize(
    ("interval", "due"),
    [(None, [0, 204, 408]), (150, [0, 201, 405]), (0, [0, 100, 201, 204, 300, 405, 408])],
)
def test_inside_a_step_a_checkpoint_waits_until_it_takes_one_percent_of_the_time(
    monkeypatch, tmp_path, interval, due
):
    """Each takes 2 s here: the next one comes 200 s after its end or later, or when `interval`
    says.
    """
    now, saved = [0.0], []

    def save(folder, state, note):
        saved.append(now[0])
        now[0] += 2

    monkeypatch.setattr(recorder_module, "save_checkpoint", save)
    monkeypatch.setattr(recorder_module.time, "perf_counter", lambda: now[0])
    saver = Saver(RunRows(RunFolder(tmp_path)), interval)
    strategy = build(TinyRecipe(), 0).strategy
    for moment in (0.0, 100.0, 201.0, 204.0, 300.0, 405.0, 408.0):
        now[0] = moment
        saver.save_if_due(strategy, {})
    assert saved == due


def test_the_rows_of_two_runs_with_one_seed_are_equal_and_another_seed_gives_others(
    finished, tmp_path
):
    for seed in (0, 1):
        tiny_run(tmp_path / str(seed), seed=seed, checkpoint_seconds=None)
    assert rows_of(tmp_path / "0") == rows_of(finished) != rows_of(tmp_path / "1")


@pytest.mark.parametrize("method", ["hfc", "dytox"])
def test_loader_processes_change_no_row(finished, tmp_path, method):
    """The transform is random: its draws follow from seed, step, phase, epoch and position."""
    for num_workers in (0, 1):
        tiny_run(tmp_path / str(num_workers), method, num_workers=num_workers)
    assert rows_of(tmp_path / "0") == rows_of(tmp_path / "1")
