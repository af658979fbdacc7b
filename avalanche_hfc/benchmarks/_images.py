"""Data sets under the benchmarks: all images in one tensor, or paths read on demand. Items are (image, class id)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from avalanche_hfc.benchmarks.transforms import IMAGENET, Statistics


class TensorImages(Dataset):
    """Images in one tensor, uint8 or float in [0, 1]. Items are tensors (c, h, w), or PIL images, which timm's augmentations need (`as_pil`)."""

    as_pil = False

    def __init__(self, images: UInt8[Tensor, "n c h w"] | Float[Tensor, "n c h w"], targets: Int[np.ndarray, "n"]):
        self.images = images
        self.targets = targets.tolist()      # a list: Avalanche reads it one by one

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, position):
        return self.__getitems__([position])[0]

    def __getitems__(self, positions: list[int]) -> list:
        """The items of a batch, with one look into the tensor; torch's loader asks for it by this name."""
        chosen = self.images[positions]
        images = [Image.fromarray(image) for image in chosen.permute(0, 2, 3, 1).numpy()] if self.as_pil else chosen
        return list(zip(images, (self.targets[position] for position in positions), strict=True))

    @property
    def sizes(self) -> set[tuple[int, int]]:
        """(width, height) of the images."""
        return {(self.images.shape[3], self.images.shape[2])}


@dataclass(frozen=True, kw_only=True)
class Source:
    """A data set as read, before it is split. A class id is a position in `class_names`."""

    train: TensorImages
    test: TensorImages
    class_names: tuple[str, ...]
    image_size: int      # the side of the images, or the side they are brought to if the user names none
    num_channels: int = 3
    statistics: Statistics = IMAGENET
