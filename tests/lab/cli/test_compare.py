"""`hfc compare` on a small folder of images."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import timm
from image_folders import COLOURS, content, hfc, make_folder, noisy
from PIL import Image
from safetensors.torch import save_file

from avalanche_hfc.lab import compare, plan
from avalanche_hfc.lab.cli import tables

CLASSES = list(COLOURS)[:5]
METHODS = ("ncm", "herding-replay")
SHORT = ("--methods", ",".join(METHODS), "--steps", "2", "--seeds", "0-1")

pytestmark = pytest.mark.usefixtures("small_weights")


@pytest.fixture
def photos(tmp_path):
    return make_folder(tmp_path / "photos", CLASSES)


def runs_of(out):
    return {
        f"{method} {seed}": out / "runs" / f"folder-b0-t2-{method}@small" / str(seed)
        for method in METHODS
        for seed in (0, 1)
    }


def finished(out):
    return {
        name
        for name, folder in runs_of(out).items()
        if (folder / "recipe.json").is_file()
        and "finished" in json.loads((folder / "recipe.json").read_text())
    }


def test_stopped_resumed_and_finished_it_says_what_the_rows_say(
    photos, tmp_path, monkeypatch, shell
):
    out = tmp_path / "out"
    call = ("compare", photos, *SHORT, "--epochs", "1", "--out", out)
    train, trained = tables.train_with_bar, []

    def stop_at_the_third(run, **options):
        trained.append(run)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return train(run, **options)

    monkeypatch.setattr(tables, "train_with_bar", stop_at_the_third)
    code, _, said = shell(*call)
    assert code == 130 and f"hfc compare {photos} --methods" in said
    assert "2 methods, 2 seeds, 2 steps of 1 epoch, 1 exemplar per class (20, or a fifth" in said
    assert said.count("5 classes cannot be split evenly") == 1
    assert finished(out) == {"ncm 0", "herding-replay 0"}  # a seed of all methods before the next
    assert not (out / "report.html").exists()
    before = {name: content(runs_of(out)[name]) for name in finished(out)}

    code, verdict, said = shell(*call)
    assert code == 0, said
    assert len(finished(out)) == 4 and len(trained) == 5
    assert {name: content(runs_of(out)[name]) for name in before} == before
    check_verdict(verdict, out)
    check_alike(out)

    page = (out / "report.html").read_bytes()
    assert shell(*call)[:2] == (0, verdict)  # nothing is trained again
    assert len(trained) == 5 and (out / "report.html").read_bytes() == page

    code, _, said = shell(*call[:-4], "--epochs", "2", "--out", out)
    assert code == 2 and "train.epochs 1, now 2" in said
    Image.fromarray(noisy("ant", 99)).save(photos / "ant" / "3.png")
    code, _, said = shell(*call)
    assert code == 2 and "The data is not what" in said and "ant" in said


def test_a_method_that_fails_leaves_the_verdict_on_the_others(photos, tmp_path, monkeypatch, shell):
    out = tmp_path / "out"
    three = ",".join((*METHODS, "hfc"))
    call = ("compare", photos, *SHORT, "--methods", three, "--epochs", "1", "--out", out)
    train, broken = tables.train_with_bar, {("hfc", 1)}

    def fail_some(run, **options):
        if (run.recipe.method.name, run.seed) in broken:
            raise FloatingPointError("The loss is not finite.")
        return train(run, **options)

    monkeypatch.setattr(tables, "train_with_bar", fail_some)
    code, verdict, said = shell(*call)
    assert code == 1 and "Failed: folder-b0-t2-hfc@small, seed 1: The loss is not finite." in said
    check_verdict(verdict, out)
    told = "hfc is not compared: seed 1 failed: The loss is not finite."
    page = (out / "report.html").read_text()
    assert told in verdict and told in page and "herding-replay" in page

    broken.clear()
    code, verdict, _ = shell(*call)
    assert code == 0 and "not compared" not in verdict

    broken.add(("herding-replay", 0))
    alone = ("compare", photos, *SHORT, "--epochs", "1", "--out", tmp_path / "alone")
    code, verdict, said = shell(*alone)
    assert code == 1 and verdict == "" and "Failed: " in said
    assert not (tmp_path / "alone" / "report.html").exists()


def test_the_command_that_uses_a_method_of_the_user_s_can_be_run(
    photos, tmp_path, monkeypatch, shell
):
    (tmp_path / "two_methods.py").write_text(
        "from avalanche_hfc.strategies import FineTune, HerdingReplay\n"
        "class Mine(HerdingReplay): pass\n"
        "class Other(FineTune): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    call = (
        "compare",
        photos,
        "--methods",
        "two_methods:Mine,two_methods:Other",
        "--steps",
        "2",
        "--seeds",
        "0",
    )
    code, verdict, said = shell(*call, "--epochs", "1", "--out", "out")
    assert code == 0, said
    (line,) = [text for text in verdict.splitlines() if text.startswith("hfc predict ")]
    words = line.replace("new.jpg", str(photos / CLASSES[0] / "0.png")).split()
    assert shell(*words[1:])[0] == 0 and words[-1] == "--allow-code"


def test_all_methods_start_from_the_weights_that_are_given(photos, tmp_path, shell):
    path = tmp_path / "encoder.safetensors"
    vit = timm.create_model(
        "vit_tiny_patch16_224", num_classes=0, img_size=32, patch_size=16, depth=3
    )
    save_file(vit.state_dict(), path, {"num_heads": "3"})
    out = tmp_path / "out"
    call = ("compare", photos, *SHORT, "--methods", "ncm,hfc", "--seeds", "0", "--epochs", "1")
    code, _, said = shell(*call, "--out", out, "--weights", path)
    assert code == 0, said
    for method, blocks in (("ncm", 3), ("hfc", 2)):  # TSA is the last one
        note = json.loads((out / f"runs/folder-b0-t2-{method}@small/0/recipe.json").read_text())
        assert note["recipe"]["model"]["weights"] == str(path)
        assert note["recipe"]["model"]["patch_size"] == 16
        assert note["recipe"]["model"]["msa_blocks"] == blocks
        assert note["weights"].startswith("matched") and "matched 0" not in note["weights"]
    code, _, said = shell(*call, "--out", out, "--weights", "small-mae")
    assert code == 2 and f"model.weights {path}, now small-mae" in said


def check_verdict(said, out):
    steps = {name: pd.read_csv(folder / "steps.csv") for name, folder in runs_of(out).items()}
    averages = {
        method: np.mean([100 * steps[f"{method} {seed}"]["average"].iloc[-1] for seed in (0, 1)])
        for method in METHODS
    }
    assert "had 1 epoch a step, fewer than the 5 of their recipes" in said
    chosen = re.match(r"Use (\S+): (\S+) %", said)
    assert chosen[2] == f"{averages[chosen[1]]:.1f}"
    predict = re.search(r"^hfc (predict .*) new.jpg$", said, re.MULTILINE)[1].split()
    assert Path(predict[1]) == runs_of(out)[f"{chosen[1]} 0"]
    image = next((out.parent / "photos" / "bee").iterdir())
    assert any(name in hfc(*predict, image) for name in CLASSES)
    assert f"Page: {out / 'report.html'}" in said


def check_alike(out):
    """Classes, order and test images of a seed are the same; replay keeps a fifth of a class."""
    folders = runs_of(out)
    for seed in (0, 1):
        columns = ["step", "class", "name", "brought_in", "total"]
        rows = [pd.read_csv(folders[f"{method} {seed}"] / "classes.csv") for method in METHODS]
        pd.testing.assert_frame_equal(rows[0][columns], rows[1][columns])
        kept = pd.read_csv(folders[f"herding-replay {seed}"] / "exemplars.csv")
        assert len(kept[kept["step"] == 1]) == 5  # one of five training images of each class


def test_a_time_budget_chooses_the_epochs_once(photos, tmp_path, monkeypatch, shell):
    monkeypatch.setattr(compare, "MOST_EPOCHS", 2)
    out = tmp_path / "out"
    call = ("compare", photos, *SHORT, "--out", out, "--minutes")
    code, _, said = shell(*call, "0.001")
    assert code == 2 and not out.exists()
    assert re.search(r"--minutes 0.001 is too short .* they need --minutes \d+\.$", said.strip())

    monkeypatch.setattr(plan, "measure", lambda *a: plan.Measured((1e4, 1e4), 1e4, 0, 0))
    assert shell(*call, "10")[0] == 0
    folders = runs_of(out)
    epochs = {
        name: pd.read_csv(folder / "train.csv")["epoch"].max() + 1
        for name, folder in folders.items()
    }
    assert {name: count for name, count in epochs.items() if name.endswith("1")} == {
        "ncm 1": 1,
        "herding-replay 1": 2,
    }

    def refused(*args):
        raise AssertionError("timed again")

    monkeypatch.setattr(plan, "measure", refused)
    assert shell(*call, "10")[0] == 0
    code, _, said = shell(*call, "20")
    assert code == 2 and "was started with --minutes 10, now 20" in said
    code, _, said = shell(*call[:-1])
    assert code == 2 and "was started with --minutes 10, without it" in said
    check_more_work(lambda *more: shell(*call, "10", *more), out)
    (out / "compare.json").write_text('{"minutes": "ten", "epochs": 2}')
    code, _, said = shell(*call, "10")
    assert code == 2 and "compare.json is not the note of a comparison" in said


def check_more_work(again, out):
    """The epochs of the budget serve the work that they were chosen for, and less."""
    before = content(out)
    for more, both in (
        (["--seeds", "0-2"], "now --methods ncm,herding-replay --seeds 0,1,2 "),
        (["--seeds", "1,3"], " --seeds 1,3 "),
        (["--methods", "ncm,icarl"], "now --methods ncm,icarl "),
        (["--steps", "3"], " --steps 3 "),
    ):
        code, _, said = again(*more)
        assert code == 2 and content(out) == before, said
        (line,) = [line for line in said.splitlines() if line.startswith("hfc: ")]
        assert both in line and "another --out, or pass --epochs 2 in place of --minutes" in line
    assert again("--seeds", "1")[0] == 0  # fewer
    assert again("--jobs", "2")[0] == 0
    note = json.loads(before["compare.json"])
    assert note == {
        "minutes": 10.0, "epochs": 2, "methods": list(METHODS), "seeds": [0, 1], "steps": 2,
        "jobs": 1,
    }  # fmt: skip
    (out / "compare.json").write_text(json.dumps({**note, "jobs": 2}))
    code, _, said = again()
    assert code == 2 and "--jobs 2; now " in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--methods", "ncm,hfs"], "Unknown method 'hfs'.*Did you mean hfc"),
        (["--methods", "ncm,m3-hfc"], "Unknown method 'm3-hfc'"),
        (["--methods", "ncm,joint"], "joint trains on all classes at once"),
        (["--methods", "hfc"], "at least two methods, got hfc"),
        (["--methods", "hfc,"], "Unknown method ''"),
        (["--seeds", "0-"], "'0-' is not of the form 0-4 or 0,2,5"),
        (["--seeds", "1,0-2"], "'1,0-2' must name each seed once"),
        (["--seeds", "3-1"], "'3-1' must name each seed"),
        (["--steps", "6"], "photos has 5 classes, too few for 6 steps: --steps 2 to 5"),
        (["--minutes", "0"], "0.* is not in the range"),
        (["--minutes", "3", "--epochs", "2"], "Choose --minutes or --epochs, not both"),
        (["--device", "tpu7"], "No device 'tpu7' here"),
        (
            ["--weights", "gone.pth"],
            "No weights file at .*gone.pth. Allowed: none, timm, small-mae",
        ),
        (["--weights", __file__], "a weights file ends in .safetensors, .pth or .pt"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(options, said, photos, tmp_path, shell):
    out = tmp_path / "out"
    given = ("compare", photos, *SHORT, "--out", out, *options)
    code, printed, error = shell(*given)
    assert code == 2 and printed == "" and not out.exists()
    last = error.strip().splitlines()[-1]
    assert re.search(said, last), error


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        (["ant"], "has 1 class, too few for 2 steps: --steps 2 needs two"),
        ([], "holds no class folders"),
        (None, "No folder "),
    ],
)
def test_data_that_cannot_be_compared_on(classes, said, tmp_path, shell):
    data = tmp_path / "data"
    if classes is not None:
        data.mkdir()
        make_folder(data, classes)
    out = tmp_path / "out"
    code, _, error = shell("compare", data, *SHORT, "--out", out)
    assert code == 2 and said in error.strip().splitlines()[-1] and not out.exists()
