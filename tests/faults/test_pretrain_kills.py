"""A pre-training that is killed at five moments ends with the files of an unbroken one."""

import csv
import hashlib
import json
import shutil
import signal
from dataclasses import replace

import pytest
import torch
from kills import CONTEXT
from pretrain_runs import RECIPE, KillAfterRow, KillAt, child, images, small_pretrain
from safetensors.torch import load_file

from avalanche_hfc.lab.pretrain import Pretraining
from avalanche_hfc.lab.progress import Progress
from avalanche_hfc.lab.ranks import machine
from avalanche_hfc.lab.schema import PretrainRecipe

LOSSES = [1.26087, 1.13197, 1.06244]
EPYC = "AMD EPYC, family 25, model 17, AVX-512"
CHECKSUMS = {  # (machine, torch): that of the weights file
    (f"{EPYC}, threads: 1", "2.14.1"): (
        "007e8b5ffda3db581d2e7a715a0dc031c7ef70c00179a6032ed63aceb7ebf77c"
    ),
    (f"{EPYC}, ATEN_CPU_CAPABILITY=avx2, threads: 1", "2.14.1"): (
        "0678c0febdcc2a18766ca918e51c31ab8eabe12bc601beabe7342de1d73811e3"
    ),
}
MOMENTS = (KillAt(2), KillAfterRow(), KillAt(1), KillAt(4), KillAt(3))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    small_pretrain(folder)
    return folder


def rows(folder):
    with (folder / "train.csv").open(newline="") as file:
        return [
            {name: row[name] for name in ("epoch", "lr", "loss")} for row in csv.DictReader(file)
        ]


def test_killed_at_five_moments_it_ends_with_the_weights_of_an_unbroken_one(tmp_path, whole):
    for moment in MOMENTS:
        process = CONTEXT.Process(target=child, args=(str(tmp_path / "run"), moment))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    small_pretrain(tmp_path / "run")
    for name in ("encoder.safetensors", "reconstructions.png"):
        assert (tmp_path / "run" / name).read_bytes() == (whole / name).read_bytes()
    assert rows(tmp_path / "run") == rows(whole) and len(rows(whole)) == 4
    assert "resumes after epoch" in (tmp_path / "run" / "log.txt").read_text()


def test_weights_are_those_of_a_plain_loop_over_the_same_draws(whole):
    """Without folder, checkpoints or rows; every image once per epoch, three of 27 left out."""
    training = Pretraining(RECIPE, 0, images().images, "cpu")
    for epoch in range(4):
        order = training._draws(epoch)[0]
        assert sorted(order.tolist()) == list(range(27))
        training.train_epoch(epoch, Progress())
    found = load_file(whole / "encoder.safetensors")
    expected = training.model.encoder.backbone.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name].half()) for name in expected)


def test_order_crops_and_masks_are_drawn_anew_in_each_epoch_and_for_each_seed():
    first = Pretraining(RECIPE, 0, images().images, "cpu")
    other = Pretraining(RECIPE, 1, images().images, "cpu")
    for again, epoch, drawn in zip(first._draws(0), first._draws(1), other._draws(0), strict=True):
        assert not torch.equal(again, epoch) and not torch.equal(again, drawn)


def test_a_short_run_of_the_recipe_of_the_packaged_weights_gives_these_losses_and_this_file():
    """Their network, batches and rates, on drawn images: what a change of the recipe would move.
    The file is compared where its checksum is known: another kind of CPU may round otherwise.
    """
    coarse = torch.rand(512, 3, 4, 4, generator=torch.Generator().manual_seed(7))
    smooth = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bicubic")
    recipe = PretrainRecipe(dtype="float16")
    training = Pretraining(recipe, 0, smooth.clamp(0, 1).mul(255).byte(), "cpu")
    losses = [training.train_epoch(epoch, Progress())["loss"] for epoch in range(3)]
    assert losses == pytest.approx(LOSSES, rel=1e-3)
    made = hashlib.sha256(training.weights()).hexdigest()
    version = torch.__version__.split("+")[0]
    assert made == CHECKSUMS.get((machine("cpu"), version), made)


def test_the_rate_rises_in_the_warm_up_and_falls_to_zero():
    training = Pretraining(RECIPE, 0, images().images, "cpu")
    rates = [training._rate(step) for step in range(12)]  # 3 batches in each of 4 epochs
    assert rates[:4] == pytest.approx([RECIPE.lr / 4, RECIPE.lr / 2, RECIPE.lr * 3 / 4, RECIPE.lr])
    assert rates[3:] == sorted(rates[3:], reverse=True) and rates[-1] < RECIPE.lr / 20


def test_a_finished_folder_is_left_as_it_is_and_one_of_other_settings_or_images_is_refused(
    tmp_path, whole
):
    before = {path.name: path.stat().st_mtime_ns for path in whole.iterdir()}
    small_pretrain(whole)
    assert {path.name: path.stat().st_mtime_ns for path in whole.iterdir()} == before
    assert json.loads((whole / "recipe.json").read_text())["recipe"]["images"] == 27
    shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(ValueError, match=r"lr 0\.001, now 0\.002"):
        small_pretrain(tmp_path / "run", recipe=replace(RECIPE, lr=2e-3))
    with pytest.raises(ValueError, match="images 27, now 26"):
        small_pretrain(tmp_path / "run", data=images(26))
    darker = images()._replace(images=images().images // 2)
    with pytest.raises(ValueError, match="pixels .*, now"):
        small_pretrain(tmp_path / "run", data=darker)


def test_fewer_images_than_a_batch_are_refused_before_a_folder_is_made(tmp_path):
    with pytest.raises(ValueError, match="7 images are fewer than a batch of 8"):
        small_pretrain(tmp_path / "run", data=images(7))
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_finite_ends_the_run_with_its_epoch(tmp_path):
    with pytest.raises(FloatingPointError, match="not finite in epoch 0"):
        small_pretrain(tmp_path / "run", recipe=replace(RECIPE, lr=1e30))
