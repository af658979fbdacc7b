"""Transforms by name, as pairs (train, eval): `dytox` as the paper says, `official` as the released
code, `plain` without augmentation, `flip-crop` with a little.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from PIL import Image
from timm.data import create_transform
from timm.data.auto_augment import posterize
from torch import Tensor
from torchvision.transforms import Compose, Normalize, RandomCrop, ToTensor
from torchvision.transforms import functional as TF

from avalanche_hfc._names import lookup

Transform = Callable[[Any], Tensor]
PADDED_CROP_LIMIT = 32  # px; up to here dytox and official crop with padding and never resize
BLACK = -1.0  # of an image in [-1, 1]


class Statistics(NamedTuple):
    """Mean and standard deviation per channel, of pixels in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


IMAGENET = Statistics((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR100 = Statistics((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))


class PlainTransform:
    """No augmentation: squash to a square of `image_size`, scale to [0, 1], then to [-1, 1] (mean
    0.5, std 0.5).

    Takes a PIL image or a tensor (…, c, h, w) of one image or a batch: uint8, or float, which must
    be in [0, 1] already.
    """

    def __init__(self, image_size: int):
        self.size = (image_size, image_size)

    def __call__(self, image: Tensor | Image.Image) -> Tensor:
        tensor = image if isinstance(image, Tensor) else TF.pil_to_tensor(image)
        if tensor.is_floating_point():
            tensor = tensor.mul(2).sub_(1)
        else:
            tensor = tensor.float().div_(127.5).sub_(1)  # bitwise 2 · (x / 255) - 1
        return (
            tensor
            if tensor.shape[-2:] == self.size
            else TF.resize(tensor, list(self.size), antialias=True)
        )


class FlipCropTransform(PlainTransform):
    """`PlainTransform`, then a crop from the image with a black margin of an eighth of its side all
    around, mirrored in one of two images.

    Takes one image, not a batch. Draws from torch's generator: the place of the crop and the mirror
    in one go.

    Args:
        image_size: Side of the images that it gives.

    Example:
        >>> image = torch.randint(256, (3, 40, 32), dtype=torch.uint8)
        >>> FlipCropTransform(32)(image).shape
        torch.Size([3, 32, 32])
    """

    def __call__(self, image: Tensor | Image.Image) -> Tensor:
        tensor = super().__call__(image)
        side, margin = self.size[0], self.size[0] // 8
        drawn = torch.rand(3)
        top, left = (drawn[:2] * (2 * margin + 1)).long().tolist()
        cropped = F.pad(tensor, [margin] * 4, value=BLACK)[
            ..., top : top + side, left : left + side
        ]
        return cropped.flip(-1) if drawn[2] < 0.5 else cropped


def _flip_crop(image_size: int, statistics: Statistics) -> tuple[Transform, Transform]:
    return FlipCropTransform(image_size), PlainTransform(image_size)


def _plain(image_size: int, statistics: Statistics) -> tuple[Transform, Transform]:
    return PlainTransform(image_size), PlainTransform(image_size)


def _posterize(image: Image.Image, bits_to_keep: int, **options: object) -> Image.Image:
    """timm asks for 0 bits at magnitude 10, in one of some 650 images. No bit kept is black; Pillow
    13 raises instead.
    """
    return (
        Image.new(image.mode, image.size)
        if bits_to_keep == 0
        else posterize(image, bits_to_keep, **options)
    )


def _augmented(
    image_size: int, statistics: Statistics, *, erasing: float
) -> tuple[Transform, Transform]:
    """timm's colour jitter is left out: RandAugment switches it off anyway."""
    train = create_transform(
        image_size,
        is_training=True,
        scale=(0.08, 1.0),
        ratio=(3 / 4, 4 / 3),
        hflip=0.5,
        color_jitter=None,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        mean=IMAGENET.mean,  # also the grey that RandAugment fills with, whatever `statistics` are
        std=IMAGENET.std,
        re_prob=erasing,
        re_mode="pixel",
        re_count=1,
    )
    for operation in train.transforms[2].ops:
        if operation.name == "PosterizeIncreasing":
            operation.aug_fn = _posterize
    normalise = Normalize(*statistics)
    train.transforms = [
        normalise if isinstance(stage, Normalize) else stage for stage in train.transforms
    ]
    if image_size <= PADDED_CROP_LIMIT:
        train.transforms[0] = RandomCrop(image_size, padding=4)
        return train, Compose([ToTensor(), normalise])
    return train, create_transform(
        image_size,
        interpolation="bicubic",
        crop_pct=0.875,
        mean=statistics.mean,
        std=statistics.std,
    )


def _dytox(image_size: int, statistics: Statistics) -> tuple[Transform, Transform]:
    """The paper's and DyTox's: no random erasing; the data's own `statistics` up to 32 px,
    ImageNet's above.
    """
    return _augmented(
        image_size, statistics if image_size <= PADDED_CROP_LIMIT else IMAGENET, erasing=0.0
    )


def _official(image_size: int, statistics: Statistics) -> tuple[Transform, Transform]:
    """The released code's: random erasing 0.25 and ImageNet's statistics, whatever the data.
    `statistics` play no part.
    """
    return _augmented(image_size, IMAGENET, erasing=0.25)


TRANSFORMS: dict[str, Callable[[int, Statistics], tuple[Transform, Transform]]] = {
    "dytox": _dytox,
    "official": _official,
    "plain": _plain,
    "flip-crop": _flip_crop,
}
"""The transforms by name; `build_transforms` returns a pair for training and evaluation."""
ON_TENSORS = ("plain", "flip-crop")  # of images of any size, as PIL images or tensors


def build_transforms(
    name: str, image_size: int, *, statistics: Statistics = IMAGENET
) -> tuple[Transform, Transform]:
    """Build the transforms for training and evaluation, which return square images.

    Args:
        name: A key of `TRANSFORMS`: ``"dytox"`` as in the paper, ``"official"`` as in the released
            code, ``"flip-crop"`` for mirrored and shifted images, ``"plain"`` for no augmentation.
        image_size: Side of the images in pixels.
        statistics: Mean and standard deviation of the channels of the data. Only ``"dytox"`` uses
            them, up to 32 pixels; otherwise the transforms have fixed ones.

    Returns:
        The transforms for training and for evaluation, each from a PIL image to a tensor.

    Raises:
        ValueError: If the name does not exist.

    Example:
        >>> from PIL import Image
        >>> train, evaluation = build_transforms("flip-crop", 16)
        >>> evaluation(Image.new("RGB", (40, 30))).shape
        torch.Size([3, 16, 16])
    """
    return lookup(TRANSFORMS, name, "transforms")(image_size, statistics)
