"""`hfc pretrain`, in this process, and a run that starts from its weights."""

import csv
import json
import re
from functools import partialmethod

import numpy as np
import pytest
from image_folders import make_folder
from PIL import Image

from avalanche_hfc.benchmarks import unlabelled
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.schema import PretrainRecipe

TINY = (
    "--image-size", "16", "--patch-size", "8", "--msa-blocks", "2", "--epochs", "2",
    "--warm-up-epochs", "1", "--batch-size", "8", "--decoder-blocks", "1",
)  # fmt: skip
RUN = (
    "run", "folder-t2-hfc@demo", "--data", "photos", "--image-size", "16", "--epochs", "1",
    "--batch-size", "8", "--mem-size", "8", "--model.patch-size", "8",
    "--model.backbone", "vit_tiny_patch16_224",
    "--model.msa-blocks", "1", "--model.weights", "pretrained/encoder.safetensors",
)  # fmt: skip


@pytest.fixture
def hfc(shell, tmp_path):
    """The command in a folder with four classes of photos."""
    make_folder(tmp_path / "photos", ["ant", "bee", "cat", "dog"])
    return shell


def test_a_run_starts_from_the_weights_of_a_pretraining_and_records_what_it_took(hfc, tmp_path):
    code, output, errors = hfc("pretrain", "photos", *TINY)
    assert code == 0 and "pretrained/encoder.safetensors" in output
    assert "Folder names are ignored" in errors and "epoch 2/2: loss" in errors
    with open("pretrained/train.csv", newline="") as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == ["0", "1"]
    with Image.open("pretrained/reconstructions.png") as picture:
        assert picture.size == (12 * 18 + 2, 3 * 18 + 2)

    code, output, errors = hfc(*RUN, "--model.num-heads", "3", "--model.embed-dim", "192")
    assert code == 0, errors
    folder = tmp_path / "runs" / "folder-b0-t2-hfc@demo" / "0"
    noted = json.loads((folder / "recipe.json").read_text())["weights"]
    assert noted.startswith("matched 18, missing") and "tsa.*" in noted
    assert noted.endswith("unused 12 (blocks.1.*)")
    assert f"weights: {noted}" in (folder / "log.txt").read_text()

    for change, said in (
        (
            ("--model.num-heads", "6", "--model.embed-dim", "192"),
            "the file has 3 attention heads, TSAViT has 6",
        ),
        (
            ("--model.num-heads", "3", "--model.embed-dim", "96"),
            "has shape (192,), TSAViT needs (96,)",
        ),
    ):
        code, output, errors = hfc(*RUN, *change, "--out", "refused")
        assert code == 2 and said in errors and "Traceback" not in errors
        assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "No folder or npz file nowhere"),
        (["photos", "--epochs", "0"], "pretrain.epochs must be a number above 0, got 0"),
        (["photos", "--mask-ratio", "1.5"], "pretrain.mask_ratio must be at most 1, got 1.5"),
        (["photos", "--warm-up-epochs", "9"], "warm_up_epochs must be below epochs (2), got 9"),
        (["photos", "--weight-decay", "nan"], "weight_decay must be 0 or more, got nan"),
        (["photos", "--dtype", "int8"], "'int8' is not one of"),
        (["photos", "--batch-size", "512"], "28 images are fewer than a batch of 512"),
        (["photos", "--patch-size", "7"], "image_size 16 is not a multiple of patch_size 7"),
        (["photos", "--backbone", "vit_tinny"], "Unknown backbone 'vit_tinny'"),
        (["photos", "--msa-blocks", "13"], "msa_blocks must be in 1…12"),
        (["photos", "--device", "tpu7"], "No device 'tpu7' here"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_exit_code_2_and_nothing_is_written(hfc, tmp_path, arguments, said):
    code, output, errors = hfc("pretrain", arguments[0], *TINY, *arguments[1:])
    assert code == 2 and said in errors and "Traceback" not in errors and output == ""
    assert [path.name for path in tmp_path.iterdir()] == ["photos"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--image-size", "20"], "image_size 20 is not a multiple of patch_size 8"),
        (["--mask-ratio", "0.01"], "mask_ratio"),
        (["--backbone", "vit_tinny"], "Unknown backbone 'vit_tinny'"),
        (["--device", "tpu7"], "No device 'tpu7' here"),
        (["--epochs", "3"], "pretrained was made by another recipe (epochs 2, now 3)"),
        (["--seed", "1"], "pretrained was made by another recipe (seed 0, now 1)"),
    ],
)
def test_a_mistake_is_found_before_the_images_are_read(hfc, tmp_path, monkeypatch, change, said):
    values = PretrainRecipe(
        image_size=16, msa_blocks=2, epochs=2, warm_up_epochs=1, batch_size=8, decoder_blocks=1
    )
    (tmp_path / "pretrained").mkdir()
    RunFolder("pretrained").begin(values.as_dict() | {"images": 28, "pixels": "0"}, 0, "")
    calls = []
    monkeypatch.setattr(unlabelled, "read_unlabelled", lambda *given: calls.append(given))
    code, _, errors = hfc("pretrain", "photos", *TINY, *change)
    assert code == 2 and said in errors and calls == []


@pytest.mark.parametrize(("epochs", "warm_up"), [(1, 0), (3, 2), (4, 3), (40, 3)])
def test_the_warm_up_is_shorter_than_a_short_training(epochs, warm_up):
    assert PretrainRecipe(epochs=epochs).warm_up_epochs == warm_up


def test_labels_of_an_npz_file_are_ignored_and_ctrl_c_tells_how_to_resume(
    hfc, tmp_path, monkeypatch
):
    pixels = np.random.RandomState(0).randint(0, 256, (12, 16, 16, 3), dtype=np.uint8)
    np.savez("images.npz", x_train=pixels, y_train=np.zeros(12, dtype=int))
    from avalanche_hfc.lab.pretrain import Pretraining

    train_epoch = Pretraining.train_epoch

    def interrupt(training, epoch, progress, *, after):
        if epoch == after:
            raise KeyboardInterrupt
        return train_epoch(training, epoch, progress)

    for after in (0, 1):
        with monkeypatch.context() as patch:
            patch.setattr(Pretraining, "train_epoch", partialmethod(interrupt, after=after))
            code, _, errors = hfc("pretrain", "images.npz", *TINY)
        assert code == 130 and "Ignored: y_train; only x_train is read." in errors
        assert "hfc pretrain images.npz --image-size 16" in errors.splitlines()[-1]
        assert "What is done is kept in pretrained. To resume:" in errors.splitlines()[-2]
    for command in ("resume", "report", "predict"):
        more = ("photos",) if command == "predict" else ()
        code, _, errors = hfc(command, "pretrained", *more)
        again = re.search(
            r"is a pre-training run, not a training run. To resume it: (hfc .*)", errors
        )
        assert code == 2 and "Traceback" not in errors
    code, _, errors = hfc(*again[1].replace("DATA", "images.npz").split()[1:])
    assert code == 0 and "epoch 2/2" in errors and "epoch 1/2" not in errors, errors
    assert "finished" not in errors

    weights = (tmp_path / "pretrained" / "encoder.safetensors").read_bytes()
    code, output, errors = hfc("pretrain", "images.npz", *TINY)
    assert code == 0 and "This pre-training is already finished; nothing was done." in errors
    assert "pretrained/encoder.safetensors" in output
    assert (tmp_path / "pretrained" / "encoder.safetensors").read_bytes() == weights
    for command in ("resume", "report"):
        code, _, errors = hfc(command, "pretrained")
        assert (
            code == 2 and "is a finished pre-training run: pass its encoder.safetensors" in errors
        )
