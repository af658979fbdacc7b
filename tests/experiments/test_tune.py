"""Tuning and variants: held-out images never meet training, test images never meet either."""

import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from avalanche_hfc.benchmarks.orders import class_order
from avalanche_hfc.lab import Recipe, recipe
from avalanche_hfc.lab.data import build_benchmark
from avalanche_hfc.lab.published import TUNED
from avalanche_hfc.lab.run_folder import TIMES, RunFolder

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
TRAIN, HELD = 4, 1  # images of each class, and those of them that are held out
SHORT = {
    "data.train_per_class": str(TRAIN),
    "data.hold_out": str(HELD),
    "train.epochs": "1",
    "model.weights": "none",
    "model.msa_blocks": "1",
    "memory.mem_size": "40",
}


SHORT_NCM = {name: text for name, text in SHORT.items() if name != "memory.mem_size"}


@pytest.fixture
def scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import tune
    import variants

    return tune, variants


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (100, TRAIN + 1, 32, 32, 3), np.uint8)


def npz(path, pixels):
    labels = np.arange(len(pixels))
    np.savez(
        path,
        x_train=pixels[:, :TRAIN].reshape(-1, 32, 32, 3),
        y_train=labels.repeat(TRAIN),
        x_test=pixels[:, TRAIN],
        y_test=labels,
    )
    return path


def without_times(folder, name):
    rows = pd.read_csv(folder / f"{name}.csv")
    return rows.drop(columns=list(TIMES & set(rows)))


def test_held_out_images_do_not_meet_training_and_test_images_do_not_meet_tuning(
    scripts, pixels, tmp_path
):
    tune, _ = scripts
    other = 255 - pixels
    files = {
        "plain": pixels,
        "other test": np.concatenate([pixels[:, :TRAIN], other[:, TRAIN:]], 1),
        "other held out": np.concatenate(
            [pixels[:, : TRAIN - HELD], other[:, TRAIN - HELD : TRAIN], pixels[:, TRAIN:]], 1
        ),
    }
    folders = {}
    for name, content in files.items():
        run = tune.run_of(tune.Trial("herding-replay"), tune.SEED, tmp_path / name, SHORT)
        tune.train(run, data_root=npz(tmp_path / f"{name}.npz", content))
        folders[name] = run.folder
    for rows in ("steps", "classes", "train", "exemplars"):
        plain, test = (without_times(folders[name], rows) for name in ("plain", "other test"))
        pd.testing.assert_frame_equal(plain, test)
    plain, held = (without_times(folders[name], "train") for name in ("plain", "other held out"))
    assert list(plain["digest"]) == list(held["digest"])
    positions_are_of_training_images(folders["plain"], tmp_path / "plain.npz", pixels)


def positions_are_of_training_images(folder, data, pixels):
    """What exemplars.csv names are images of the same class that were not held out."""
    own = Recipe.from_dict(RunFolder(folder).metadata()["recipe"])
    stream = [
        image for step in build_benchmark(own, 0, data).train_stream for image, _, _ in step.dataset
    ]
    order = class_order("cifar100-a")
    rows = RunFolder(folder).read("exemplars")
    assert len(stream) == 20 * (TRAIN - HELD) and len(rows) > 40
    for row in rows:
        image = stream[int(row["position"])].permute(1, 2, 0).numpy()
        of_class = pixels[order[int(row["class"])]] / 127.5 - 1
        found = np.flatnonzero(np.abs(of_class - image).max((1, 2, 3)) < 1e-5)
        assert found.tolist() in [[place] for place in range(TRAIN - HELD)]


def test_the_script_resumes_and_marks_the_best_trial_of_a_row(
    scripts, pixels, tmp_path, monkeypatch, capsys
):
    data = npz(tmp_path / "images.npz", pixels)
    words = [word for leaf, value in SHORT_NCM.items() for word in ("--set", f"{leaf}={value}")]
    call = ["tune.py", "--data", data, "--out", tmp_path / "out", "--runs", tmp_path / "runs"]
    monkeypatch.setattr(sys, "argv", [*map(str, call), "--only", "ncm", "--only", "ranpac", *words])

    def run():
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(EXPERIMENTS / "tune.py"), run_name="__main__")
        return end.value.code

    assert run() == 0
    first = (tmp_path / "out" / "trials.csv").read_text()
    lines = pd.read_csv(tmp_path / "out" / "trials.csv")
    assert list(lines["row"]) == ["ncm"] + ["ranpac"] * 7
    for _, line in lines.iterrows():
        folder = tmp_path / "runs" / line["row"]
        words = line["values"].replace(", ", "-").replace(" ", "-").replace("=", "-")
        accuracies = pd.read_csv(folder / words / "100" / "steps.csv")["accuracy"]
        assert line["average"] == pytest.approx(100 * sum(accuracies) / 5)
    of_ranpac = lines[lines["row"] == "ranpac"]
    highest = of_ranpac["average"] == of_ranpac["average"].max()
    assert of_ranpac["best"].tolist() == highest.tolist()
    monkeypatch.setattr("avalanche_hfc.lab.run.run", None)  # a second call trains nothing
    assert run() == 0 and (tmp_path / "out" / "trials.csv").read_text() == first
    shutil.rmtree(tmp_path / "runs")  # nor does one that has the lines alone
    assert run() == 0 and (tmp_path / "out" / "trials.csv").read_text() == first
    monkeypatch.setattr(sys, "argv", [*map(str, call), "--only", "ncm"])  # not the lines' settings
    assert run() == 2 and "ncm, as it is, seed 100, with other settings" in capsys.readouterr().err
    assert (tmp_path / "out" / "trials.csv").read_text() == first
    for wrong, said in (
        (["--only", "podnte"], "Did you mean 'podnet'"),
        (["--set", "train.epochs"], "--set must be LEAF=VALUE, as in train.epochs=1, got"),
        (["--jobs", "0"], "must be a whole number of at least 1, got '0'"),
    ):
        monkeypatch.setattr(sys, "argv", [*map(str, call), *wrong])
        assert run() == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize("changed", [{}, {"train.channels_last": "true"}])
def test_the_committed_settings_are_those_of_the_trials_as_they_are_now(scripts, tmp_path, changed):
    """Options that came later do not change what a line says, unless they are used."""
    tune, variants = scripts
    lines = pd.read_csv(EXPERIMENTS / "results/real-images/variants/variants.csv")
    trials = {(trial.row, str(trial)): trial for trial in variants.VARIANTS.values()}
    found = [
        tune.digest(tune.run_of(trials[row, values], seed, tmp_path, changed))
        for row, values, seed in lines[["row", "values", "seed"]].itertuples(index=False)
    ]
    same = found == lines["settings"].tolist()
    assert found and same == (not changed)


def test_the_tuned_values_are_those_of_the_best_trials(scripts, tmp_path):
    """Every row of the grids has its trials, and its recipe the values of the best of them."""
    tune, _ = scripts
    lines = pd.read_csv(EXPERIMENTS / "results/real-images/tuning/trials.csv")
    trials = {(trial.row, str(trial)): trial for trial in tune.trials_of(tune.GRIDS, tune.FURTHER)}
    keys = list(lines[["row", "values"]].itertuples(index=False, name=None))
    assert len(keys) == len(trials) and set(keys) == set(trials)
    for row, own in lines.groupby("row"):
        best = trials[row, own.loc[own["average"].idxmax(), "values"]]
        trial = tune.run_of(best, tune.SEED, tmp_path, {}).recipe
        held = recipe(trial.name).leaves()
        differing = {leaf for leaf, value in trial.leaves().items() if held[leaf] != value}
        assert differing <= {"data.hold_out", "data.test_per_class"}, row
        assert set(TUNED.get(row, {})) == {leaf for leaf, _ in best.values}, row


def test_the_factors_of_alignment_are_those_that_scale_the_rows(
    scripts, pixels, tmp_path, monkeypatch
):
    """The run is the one that it is without a look at its factors."""
    import alignment

    tune, _ = scripts
    file = npz(tmp_path / "images.npz", pixels)
    trial = alignment.TRIALS["SGD, rate 0.05"]
    found = alignment.factors(trial, file, SHORT)
    run = tune.run_of(trial, tune.SEED, tmp_path, SHORT)
    tune.train(run, data_root=file)
    assert found["accuracy"].tolist() == pd.read_csv(run.folder / "steps.csv")["accuracy"].tolist()
    assert found["factor"].isna().tolist() == [True, False, False, False, False]
    planted = iter([0.5, 2.0, 1.5, 3.0])
    monkeypatch.setattr(
        alignment.ALIGNED, lambda weight, steps: next(planted) * weight.new_ones(())
    )
    assert alignment.factors(trial, file, SHORT)["factor"][1:].tolist() == [0.5, 2.0, 1.5, 3.0]
