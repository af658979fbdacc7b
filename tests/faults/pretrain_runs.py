"""A small pre-training, in this process or in one that kills itself."""

import os
import signal

import torch

from avalanche_hfc.benchmarks.unlabelled import UnlabelledImages
from avalanche_hfc.lab.pretrain import pretrain
from avalanche_hfc.lab.progress import Progress
from avalanche_hfc.lab.schema import PretrainRecipe

RECIPE = PretrainRecipe(
    epochs=4, image_size=8, patch_size=4, msa_blocks=1, batch_size=8, warm_up_epochs=1,
    decoder_blocks=1, mask_ratio=0.5, dtype="float16",
)  # fmt: skip


class KillAt(Progress):
    """Ends the process, as a power cut would, after so many batches; just before the row of an
    epoch is saved where that many end one.
    """

    def __init__(self, batches: int):
        self.left = batches

    def batch(self, fraction: float) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class KillAfterRow(Progress):
    """Ends the process between the row of an epoch and its checkpoint."""

    def epoch(self, row) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def images(count=27):
    generator = torch.Generator().manual_seed(5)
    drawn = torch.randint(0, 256, (count, 3, 8, 8), dtype=torch.uint8, generator=generator)
    return UnlabelledImages(drawn, ())


def small_pretrain(folder, progress=None, recipe=RECIPE, data=None, seed=0):
    pretrain(recipe, seed, folder, data or images(), progress=progress, checkpoint_seconds=0)


def child(folder, progress):
    torch.set_num_threads(1)
    small_pretrain(folder, progress)
