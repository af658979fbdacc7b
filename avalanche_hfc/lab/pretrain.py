"""Masked-autoencoder pre-training in a run folder: started, resumed, or found finished by the same
call.
"""

import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor
from torch.optim import AdamW
from torchvision.transforms.functional import to_pil_image
from torchvision.utils import make_grid

from avalanche_hfc.benchmarks.positions import sample_seeds
from avalanche_hfc.benchmarks.transforms import PlainTransform
from avalanche_hfc.benchmarks.unlabelled import UnlabelledImages, random_crops
from avalanche_hfc.lab.build import by_decay
from avalanche_hfc.lab.checkpoint import load_checkpoint, load_state, warn
from avalanche_hfc.lab.progress import Progress
from avalanche_hfc.lab.ranks import check_device, machine
from avalanche_hfc.lab.record import Saver
from avalanche_hfc.lab.rows import RowFile, replace_file
from avalanche_hfc.lab.run import check_disk, logged
from avalanche_hfc.lab.run_folder import RunFolder, RunRows
from avalanche_hfc.lab.schema import PretrainRecipe
from avalanche_hfc.losses.reconstruction import masked_reconstruction
from avalanche_hfc.models import ViTEncoder
from avalanche_hfc.models.masked_autoencoder import MaskedAutoencoder
from avalanche_hfc.plugins.rates import cosine, warm_up

COLUMNS = ("epoch", "lr", "loss", "seconds")
WEIGHTS = "encoder.safetensors"
PICTURES = "reconstructions.png"
NUM_PICTURES = 12
BETAS = (0.9, 0.95)
log = logging.getLogger(__name__)


def pretrain(
    recipe: PretrainRecipe,
    seed: int,
    folder: Path | str,
    data: UnlabelledImages,
    *,
    device: str = "cpu",
    progress: Progress | None = None,
    checkpoint_seconds: float | int | None = None,
) -> None:
    """Train a masked autoencoder and write its encoder to `encoder.safetensors` in the folder.

    An interrupted run resumes from its last checkpoint and ends with the weights of an unbroken
    one, bit for bit. A finished run is left as it is. The folder also holds `recipe.json`,
    `train.csv` (a row per epoch), `log.txt` and `reconstructions.png`.

    Args:
        recipe: All settings.
        seed: Of weights, batches, crops and masks.
        folder: Of the run.
        data: The images, as `read_unlabelled` gives them.
        device: Where to train.
        progress: Called for every batch and epoch.
        checkpoint_seconds: Seconds between checkpoints. None: so that they take 1 % of the time.

    Raises:
        ValueError: Fewer images than a batch; a network that cannot be built; a folder of another
            recipe or in use.
        FloatingPointError: The loss is not finite.
    """
    device = check_device(device)
    if len(data.images) < recipe.batch_size:
        raise ValueError(
            f"{len(data.images)} images are fewer than a batch of {recipe.batch_size}. Choose a "
            f"batch size of at most {len(data.images)}."
        )
    run_folder = RunFolder(folder)
    values = recipe.as_dict() | {"images": len(data.images), "pixels": data.digest()}
    run_folder.check(values, seed)
    with run_folder.owned():
        run_folder.check(values, seed)  # nobody writes it any more
        if run_folder.finished:
            return
        training = Pretraining(recipe, seed, data.images, device)
        check_disk(run_folder, training)
        changed = run_folder.begin(values, seed, machine(device))
        with logged(run_folder.log):
            if changed:
                warn(
                    f"{run_folder.path} resumes under other conditions ({'; '.join(changed)}): its "
                    "weights may differ from an unbroken run's."
                )
            _train(training, run_folder, progress or Progress(), checkpoint_seconds)
            training.model.eval()
            replace_file(run_folder.path / WEIGHTS, training.weights())
            to_pil_image(training.pictures()).save(run_folder.path / PICTURES)
            run_folder.finish()


def check_pretraining(recipe: PretrainRecipe, seed: int, folder: Path | str, device: str) -> None:
    """Look for what is wrong whatever the images are, before they are read.

    Args:
        recipe: As in `pretrain`.
        seed: As in `pretrain`.
        folder: As in `pretrain`.
        device: As in `pretrain`.

    Raises:
        ValueError: There is no such device; a network that cannot be built; a folder of another
            recipe.
    """
    check_device(device)
    with torch.random.fork_rng(devices=[]):
        build_autoencoder(recipe)
    run_folder = RunFolder(folder)
    held = (run_folder.metadata() or {"recipe": {}})["recipe"]
    of_images = {name: held[name] for name in ("images", "pixels") if name in held}
    run_folder.check(recipe.as_dict() | of_images, seed)


def _train(
    training: "Pretraining", run_folder: RunFolder, progress: Progress, interval: float | int | None
) -> None:
    """The epochs from where the folder stands."""
    rows = PretrainRows(run_folder)
    saver = Saver(rows, interval)
    checkpoint = load_checkpoint(run_folder.checkpoints, rows.check)
    first = 0
    if checkpoint is not None:
        load_state(training, checkpoint, run_folder.checkpoints)
        first = checkpoint.note["epoch"] + 1
        log.info("resumes after epoch %d", first)
    rows.keep({"train": first})
    epochs = training.recipe.epochs
    progress.begin([epochs], first / epochs)
    for epoch in range(first, epochs):
        row = training.train_epoch(epoch, progress)
        rows.add("train", [row])
        progress.epoch(row)
        log.info("epoch %d/%d: loss %.4f, %.1f s", epoch + 1, epochs, row["loss"], row["seconds"])
        save = saver.save if epoch == epochs - 1 else saver.save_if_due
        save(training, {"epoch": epoch})


class PretrainRows(RunRows):
    """train.csv of a pre-training: `lr` is that of the epoch's last batch, `loss` the mean over
    the batches.
    """

    def __init__(self, folder: RunFolder):
        self.folder = folder
        self.files = {"train": RowFile(folder.csv("train"), COLUMNS)}


class Pretraining:
    """Model, optimizer and images. What is drawn in an epoch depends on seed, epoch and position
    alone.
    """

    resumable = True

    def __init__(
        self, recipe: PretrainRecipe, seed: int, images: Tensor, device: str | torch.device
    ):
        self.recipe, self.seed, self.images = recipe, seed, images
        self.device = torch.device(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = build_autoencoder(recipe).to(self.device)
        group = {"params": list(self.model.parameters())}
        self.optimizer = AdamW(
            by_decay({**group, "weight_decay": recipe.weight_decay}), lr=recipe.lr, betas=BETAS
        )
        self.batches = len(images) // recipe.batch_size  # of an epoch

    def train_epoch(self, epoch: int, progress: Progress) -> dict[str, Any]:
        """One pass over the images; a row of train.csv."""
        start = time.perf_counter()
        order, crops, noise = self._draws(epoch)
        total = torch.zeros((), dtype=torch.float64, device=self.device)
        self.model.train()
        for batch in range(self.batches):
            rate = self._rate(epoch * self.batches + batch)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            positions = order[batch * self.recipe.batch_size : (batch + 1) * self.recipe.batch_size]
            images = random_crops(
                self.images[positions].to(self.device),
                crops[positions].to(self.device),
                self.recipe.smallest_crop,
            )
            predicted, masked = self.model(images, noise[positions].to(self.device))
            loss = masked_reconstruction(predicted, self.model.masked_patches(images, masked))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.detach()
            progress.batch(1 / self.batches / self.recipe.epochs)
        mean = total.item() / self.batches
        if not math.isfinite(mean):
            raise FloatingPointError(f"The loss is not finite in epoch {epoch} (counted from 0).")
        seconds = round(time.perf_counter() - start, 2)
        return {"epoch": epoch, "lr": rate, "loss": mean, "seconds": seconds}

    def _draws(self, epoch: int) -> tuple[Tensor, Tensor, Tensor]:
        """Order of the images, draws of their crops, and noise of their patches."""
        key = sample_seeds(("pretrain", self.seed), np.array([epoch]))[0]
        generator = torch.Generator().manual_seed(key)
        count = len(self.images)
        return (
            torch.randperm(count, generator=generator),
            torch.rand(count, 5, generator=generator),
            torch.rand(count, self.model.num_patches, generator=generator),
        )

    def _rate(self, step: int) -> float:
        """The learning rate of an update, counted from 0: warm-up, then cosine to 0."""
        before, all_steps = (
            epochs * self.batches for epochs in (self.recipe.warm_up_epochs, self.recipe.epochs)
        )
        if step < before:
            return warm_up(self.recipe.lr, step, before)
        return cosine(self.recipe.lr, 0.0, step - before, all_steps - before)

    def weights(self) -> bytes:
        """The encoder as a safetensors file, under timm's names."""
        dtype = {"float16": torch.float16, "float32": torch.float32}[self.recipe.dtype]
        encoder = self.model.encoder
        tensors = {
            name: value.detach().cpu().to(dtype).contiguous()
            for name, value in encoder.backbone.state_dict().items()
        }
        return save(tensors, {"num_heads": str(encoder.num_heads)})

    @torch.no_grad()
    def pictures(self) -> Tensor:
        """A grid of the first images: originals, what the encoder sees, reconstructions.

        A reconstructed patch has the mean and the spread of the original: the network predicts
        neither.
        """
        shown = self.images[:NUM_PICTURES].to(self.device)
        images = PlainTransform(self.recipe.image_size)(shown)
        noise = self._draws(0)[2][: len(shown)].to(self.device)
        predicted, masked = self.model(images, noise)
        variance, mean = torch.var_mean(
            self.model.masked_patches(images, masked), dim=-1, keepdim=True
        )
        hidden = self.model.with_patches(images, masked, torch.zeros_like(predicted))
        filled = self.model.with_patches(images, masked, predicted * variance.sqrt() + mean)
        rows = torch.cat([images, hidden, filled]).clamp(-1, 1).add(1).div(2)
        return make_grid(rows.cpu(), nrow=len(shown), padding=2, pad_value=1.0)

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


def build_autoencoder(recipe: PretrainRecipe) -> MaskedAutoencoder:
    """The network of a recipe, with random weights."""
    encoder = ViTEncoder(
        recipe.backbone,
        image_size=recipe.image_size,
        patch_size=recipe.patch_size,
        msa_blocks=recipe.msa_blocks,
    )
    return MaskedAutoencoder(
        encoder,
        mask_ratio=recipe.mask_ratio,
        decoder_blocks=recipe.decoder_blocks,
        decoder_dim=recipe.decoder_dim,
        decoder_heads=recipe.decoder_heads,
    )
