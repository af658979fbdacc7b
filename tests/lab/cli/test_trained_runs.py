"""The model of a finished run outside the command: `load_run` and `hfc export`."""

import json
import subprocess
import sys

import pandas as pd
import pytest
import torch
from image_folders import COLOURS, TINY, hfc, make_folder
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

from avalanche_hfc import load_run
from avalanche_hfc.lab import trained_run as export_task

NAMES = list(COLOURS)[:4]
METHODS = ("hfc", "icarl", "dytox")  # the head, the nearest mean, a token per step


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("trained")
    make_folder(root / "images", NAMES)
    for method in METHODS:
        name = f"folder-t2-{method}@demo"
        hfc("run", name, "--data", root / "images", "--out", root / "runs", *TINY)
    return root


def folder_of(place, method):
    return place / "runs" / f"folder-b0-t2-{method}@demo" / "0"


@pytest.mark.parametrize("method", METHODS)
def test_a_loaded_model_predicts_what_the_run_counted_in_its_evaluation(place, method):
    trained = load_run(folder_of(place, method).parent)
    classes = pd.read_csv(folder_of(place, method) / "classes.csv").query("step == 1")
    column = "correct_nme" if method == "icarl" else "correct"
    for row in classes.to_dict("records"):
        files = [place / "images" / row["name"] / f"{number}.png" for number in (1, 6)]
        images = torch.stack([trained.transform(Image.open(file)) for file in files])
        assert images.shape[1:] == trained.input_shape
        found = [trained.class_names[place] for place in trained.model(images).argmax(1).tolist()]
        assert found.count(row["name"]) == row[column]
        assert trained.steps[row["name"]] == row["brought_in"]
    exemplars = pd.read_csv(folder_of(place, method) / "exemplars.csv").query("step == 1")
    assert trained.exemplars == {
        NAMES[class_id]: tuple(rows.sort_values("rank")["position"])
        for class_id, rows in exemplars.groupby("class")
    }


@pytest.mark.parametrize("method", METHODS)
def test_torchscript_gives_the_same_logits_for_any_batch_without_this_package(
    place, method, tmp_path
):
    file = tmp_path / "model.pt"
    assert hfc("export", folder_of(place, method), "--to", "torchscript", "--out", file) == (
        f"Model: {file}\n"
    )
    trained = load_run(folder_of(place, method))
    images = torch.randn(5, *trained.input_shape)
    torch.save(images, tmp_path / "images.pt")
    code = (
        "import sys, torch; extra = {'class_names': ''}; "
        "model = torch.jit.load('model.pt', _extra_files=extra); "
        "torch.save(model(torch.load('images.pt')), 'logits.pt'); print(extra['class_names'].decode()); "
        "assert not any(name.startswith('avalanche') for name in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    torch.testing.assert_close(torch.load(tmp_path / "logits.pt"), trained.model(images))
    assert tuple(json.loads(result.stdout)) == trained.class_names
    with pytest.raises(FileExistsError, match=r"model\.pt exists already"):
        hfc("export", folder_of(place, method), "--to", "torchscript", "--out", file)


@pytest.mark.parametrize("method", ["hfc", "dytox"])
def test_onnx_gives_the_same_logits_for_any_batch(place, method, tmp_path):
    pytest.importorskip("onnxscript", reason="needs the extra onnx")
    runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime, of the extra test")
    file = export_task.export(folder_of(place, method), "onnx", tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    session = runtime.InferenceSession(file)
    trained = load_run(folder_of(place, method))
    for count in (1, 5):
        images = torch.randn(count, *trained.input_shape)
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        expected = trained.model(images).detach()
        torch.testing.assert_close(torch.from_numpy(logits), expected, rtol=1e-4, atol=1e-5)
    told = session.get_modelmeta().custom_metadata_map
    assert tuple(json.loads(told["class_names"])) == trained.class_names
    assert tuple(json.loads(told["input_shape"])) == trained.input_shape


def test_safetensors_holds_every_weight_and_stands_in_the_run_folder(place):
    hfc("export", folder_of(place, "icarl"), "--to", "safetensors")
    trained = load_run(folder_of(place, "icarl"))
    path = folder_of(place, "icarl") / "model.safetensors"
    held = load_file(path)
    with safe_open(path, "pt") as file:
        assert tuple(json.loads(file.metadata()["class_names"])) == trained.class_names
    expected = trained.model.state_dict()
    assert held.keys() == expected.keys() and "means" in held
    assert all(torch.equal(held[name], expected[name]) for name in held)
