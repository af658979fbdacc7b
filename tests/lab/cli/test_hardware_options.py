"""Micro-batches, precision, compilation and layout as values of a recipe: runs, refusals, old
folders.
"""

import csv
import json
from pathlib import Path

import pytest
import torch
from image_folders import content, hfc

from avalanche_hfc.lab.trained_run import load_run

NAME = "digits-b0-t5-hfc@demo"
QUICK = "--epochs 1 --train-per-class 8 --test-per-class 8 --batch-size 8".split()


def rows(folder, name, recipe_name=NAME):
    with open(Path(folder) / recipe_name / "0" / f"{name}.csv") as file:
        return list(csv.DictReader(file))


def losses(rows):
    """The loss terms of each epoch."""
    names = [name for name in rows[0] if name.startswith("loss")]
    assert names
    return [[float(row[name] or 0) for name in names] for row in rows]


def test_a_run_with_checkpointed_activations_has_the_same_weights(tmp_path):
    hfc("run", NAME, *QUICK, "--out", tmp_path / "kept")
    hfc("run", NAME, *QUICK, "--out", tmp_path / "less", "--checkpoint-activations", "true")
    kept, less = (
        [row["digest"] for row in rows(tmp_path / out, "train")] for out in ("kept", "less")
    )
    assert kept == less and all(kept)


def test_a_run_with_an_option_that_is_a_constant_today_is_read_but_not_resumed(tmp_path):
    hfc("run", NAME, *QUICK, "--out", tmp_path)
    path = tmp_path / NAME / "0" / "recipe.json"
    held = json.loads(path.read_text())
    held["recipe"]["method"]["gone"] = 3
    del held["sha256"]  # as in folders of earlier versions
    path.write_text(json.dumps(held))
    before = content(tmp_path)
    hfc("run", NAME, *QUICK, "--out", tmp_path)  # it is finished
    assert load_run(path.parent).class_names and content(tmp_path) == before
    del held["finished"]
    path.write_text(json.dumps(held))
    with pytest.raises(ValueError, match="made by another recipe \\(method.gone 3, now None"):
        hfc("resume", path.parent)


def test_a_model_trained_on_a_gpu_is_loaded_on_a_cpu(tmp_path):
    hfc("run", NAME, *QUICK, "--out", tmp_path)
    path = tmp_path / NAME / "0" / "recipe.json"
    held = json.loads(path.read_text())
    held["recipe"]["train"] |= {"precision": "float16", "tf32": True}
    del held["sha256"]
    path.write_text(json.dumps(held))
    trained = load_run(path.parent)
    x = torch.zeros(2, *trained.input_shape)
    assert trained.model(x).isfinite().all() and trained.model(x).dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        (NAME, "--precision float16", "precision 'float16' needs a GPU, got device 'cpu'"),
        (NAME, "--precision float64", "float32, bfloat16 or float16, got 'float64'"),
        (
            "digits-b0-t5-avalanche-replay@demo",
            "--checkpoint-activations true",
            "has no option checkpoint_activations",
        ),
        ("digits-b0-t5-avalanche-replay@demo", "--precision bfloat16", "has no option precision"),
        ("digits-b0-t5-avalanche-replay@demo", "--compile true", "has no option compile"),
        (NAME, "--tf32 true", "tf32=True needs a CUDA GPU, got device 'cpu'"),
        (NAME, "--channels-last true", "ResNet18; TSAViT has 1 convolution"),
        (
            "digits-b0-t5-avalanche-replay@demo",
            "--channels-last true",
            "has no option channels_last",
        ),
    ],
)
def test_what_cannot_be_is_one_line_before_anything_is_written(shell, tmp_path, name, given, said):
    words = ("run", name, "--device", "cpu", "--out", tmp_path, "--batch-size", "8")
    code, _, errors = shell(*words, *given.split())
    (line,) = [one for one in errors.splitlines() if one.startswith("hfc: ")]
    assert code == 2 and said in line
    assert list(tmp_path.iterdir()) == []
