"""Transforms by name, as pairs (train, eval). The stages of dytox and official are those of HFC.md §1.3, in its order."""

from collections.abc import Callable
from typing import NamedTuple

from timm.data import create_transform
from torch import Tensor
from torchvision.transforms import Compose, Normalize, RandomCrop, Resize, ToTensor
from torchvision.transforms import functional as TF

from avalanche_hfc.benchmarks.orders import known_names

PADDED_CROP_LIMIT = 32      # px; up to here dytox and official crop with padding and never resize


class Statistics(NamedTuple):
    """Mean and standard deviation per channel, of pixels in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


IMAGENET = Statistics((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR100 = Statistics((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))
HALF = Statistics((0.5,), (0.5,))      # one value for any number of channels


class ToUnitTensor:
    """A PIL image or a uint8 tensor becomes a float tensor in [0, 1]; a float tensor is in [0, 1] already and stays as it is."""

    def __call__(self, image) -> Tensor:
        tensor = image if isinstance(image, Tensor) else TF.pil_to_tensor(image)
        return tensor if tensor.is_floating_point() else tensor.float() / 255

    def __repr__(self) -> str:
        return "ToUnitTensor()"


def _plain(image_size: int, statistics: Statistics) -> tuple[Compose, Compose]:
    """No augmentation: squash to a square of `image_size`, scale to [0, 1], then to [-1, 1]. `statistics` plays no part."""
    stages = Compose([Resize((image_size, image_size), antialias=True), ToUnitTensor(), Normalize(*HALF)])
    return stages, stages


def _augmented(image_size: int, statistics: Statistics, *, erasing: float) -> tuple[Compose, Compose]:
    """The list of HFC.md §1.3. timm's colour jitter is left out: RandAugment switches it off anyway."""
    train = create_transform(
        image_size,
        is_training=True,
        scale=(0.08, 1.0),
        ratio=(3 / 4, 4 / 3),
        hflip=0.5,
        color_jitter=None,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        mean=IMAGENET.mean,      # also the grey that RandAugment fills with, whatever `statistics` are
        std=IMAGENET.std,
        re_prob=erasing,
        re_mode="pixel",
        re_count=1,
    )
    normalise = Normalize(*statistics)
    train.transforms = [normalise if isinstance(stage, Normalize) else stage for stage in train.transforms]
    if image_size <= PADDED_CROP_LIMIT:
        train.transforms[0] = RandomCrop(image_size, padding=4)
        return train, Compose([ToTensor(), normalise])
    return train, create_transform(image_size, interpolation="bicubic", crop_pct=0.875, mean=statistics.mean, std=statistics.std)


def _dytox(image_size: int, statistics: Statistics) -> tuple[Compose, Compose]:
    """The paper's and DyTox's: no random erasing; the data's own `statistics` up to 32 px, ImageNet's above."""
    return _augmented(image_size, statistics if image_size <= PADDED_CROP_LIMIT else IMAGENET, erasing=0.0)


def _official(image_size: int, statistics: Statistics) -> tuple[Compose, Compose]:
    """The released code's: random erasing 0.25 and ImageNet's statistics, whatever the data. `statistics` play no part."""
    return _augmented(image_size, IMAGENET, erasing=0.25)


TRANSFORMS: dict[str, Callable[[int, Statistics], tuple[Compose, Compose]]] = {
    "dytox": _dytox,
    "official": _official,
    "plain": _plain,
}


def build_transforms(name: str, image_size: int, *, statistics: Statistics = IMAGENET) -> tuple[Compose, Compose]:
    """(train, eval) transforms for square images of `image_size` pixels."""
    if name not in TRANSFORMS:
        raise ValueError(f"Unknown transforms {name!r}. {known_names(name, TRANSFORMS)}")
    return TRANSFORMS[name](image_size, statistics)
