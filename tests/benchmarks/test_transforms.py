"""Transforms against DyTox's and the released code's: stages, parameters, and pixel values computed
by hand.
"""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data.auto_augment import RandAugment
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import MaybeToTensor, RandomResizedCropAndInterpolation
from torchvision.transforms import (
    CenterCrop,
    InterpolationMode,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    Resize,
)

from avalanche_hfc.benchmarks import build_transforms
from avalanche_hfc.benchmarks.transforms import CIFAR100, IMAGENET

OPERATIONS = (
    "AutoContrast Equalize Invert Rotate PosterizeIncreasing SolarizeIncreasing SolarizeAdd ColorIncreasing ContrastIncreasing"
    " BrightnessIncreasing SharpnessIncreasing ShearX ShearY TranslateXRel TranslateYRel"
).split()


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(
        np.random.RandomState(seed).randint(0, 256, (height, width, 3), dtype=np.uint8)
    )


def statistics_of(stage: Normalize) -> tuple:
    return tuple(
        tuple(round(float(value), 4) for value in values) for values in (stage.mean, stage.std)
    )


def test_the_statistics_are_those_of_the_table():
    assert IMAGENET == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert CIFAR100 == ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761))


@pytest.mark.parametrize(
    "name, image_size, statistics",
    [
        ("dytox", 224, IMAGENET),
        ("dytox", 32, CIFAR100),
        ("official", 224, IMAGENET),
        ("official", 32, IMAGENET),
    ],
)
def test_the_training_stages_are_those_of_the_table(name, image_size, statistics):
    stages = build_transforms(name, image_size, statistics=CIFAR100)[0].transforms
    crop = RandomResizedCropAndInterpolation if image_size == 224 else RandomCrop
    erasing = [RandomErasing] if name == "official" else []
    assert [type(stage) for stage in stages] == [
        crop,
        RandomHorizontalFlip,
        RandAugment,
        MaybeToTensor,
        Normalize,
        *erasing,
    ]
    assert stages[1].p == 0.5
    assert statistics_of(stages[4]) == statistics


@pytest.mark.parametrize("name", ["dytox", "official"])
@pytest.mark.parametrize("image_size, padded", [(32, True), (33, False)])
def test_images_up_to_32_px_are_padded_by_4_and_cropped(name, image_size, padded):
    crop = build_transforms(name, image_size)[0].transforms[0]
    assert isinstance(crop, RandomCrop) == padded
    if padded:
        assert (
            crop.size == (32, 32)
            and crop.padding == 4
            and crop.fill == 0
            and crop.padding_mode == "constant"
        )


@pytest.mark.parametrize("magnitude, kept", [(0, 4), (4.9, 3), (9.9, 1), (10, 0)])
def test_posterize_keeps_the_bits_of_its_magnitude_down_to_none(magnitude, kept):
    operation = (
        build_transforms("dytox", 32)[0].transforms[2].ops[OPERATIONS.index("PosterizeIncreasing")]
    )
    operation.magnitude, operation.magnitude_std, operation.prob = magnitude, 0, 1
    image = picture(32, 32)
    expected = np.asarray(image) & (0xFF00 >> kept & 0xFF)
    np.testing.assert_array_equal(np.asarray(operation(image)), expected)


def test_official_erases_a_quarter_of_the_images_by_noise():
    erasing = build_transforms("official", 224)[0].transforms[-1]
    assert (
        erasing.probability == 0.25
        and erasing.per_pixel
        and erasing.min_count == erasing.max_count == 1
    )
    assert (erasing.min_area, round(erasing.max_area, 4)) == (0.02, 0.3333)
    assert np.exp(erasing.log_aspect_ratio) == pytest.approx([0.3, 1 / 0.3])


@pytest.mark.parametrize("name", ["dytox", "official"])
def test_large_images_are_evaluated_on_the_centre_of_256_px(name):
    stages = build_transforms(name, 224, statistics=CIFAR100)[1].transforms
    assert [type(stage) for stage in stages] == [Resize, CenterCrop, MaybeToTensor, Normalize]
    assert stages[0].size == 256 and stages[0].interpolation == InterpolationMode.BICUBIC
    image = picture(300, 280)
    shrunk = (
        np.asarray(image.resize((int(256 * 300 / 280), 256), Image.BICUBIC), dtype=np.float64) / 255
    )
    left, top = round((shrunk.shape[1] - 224) / 2), round((256 - 224) / 2)
    expected = (shrunk[top : top + 224, left : left + 224] - (0.485, 0.456, 0.406)) / (
        0.229,
        0.224,
        0.225,
    )
    np.testing.assert_allclose(
        build_transforms(name, 224)[1](image).permute(1, 2, 0), expected, atol=1e-5
    )


@pytest.mark.parametrize("name, image_size", [("dytox", 32), ("official", 32), ("dytox", 48)])
def test_training_draws_and_evaluation_does_not(name, image_size):
    train, evaluate = build_transforms(name, image_size)
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    image = picture(image_size, image_size)
    drawn = torch.stack([train(image) for _ in range(8)])
    assert drawn.shape == (8, 3, image_size, image_size)
    assert len({tuple(one.flatten().tolist()) for one in drawn}) == 8
    assert torch.equal(evaluate(image), evaluate(image))


def test_plain_scales_bytes_to_minus_one_and_one():
    train, evaluate = build_transforms("plain", 2)
    pixels = torch.tensor([[[0, 51], [102, 255]]], dtype=torch.uint8)
    for transform in (train, evaluate):
        torch.testing.assert_close(transform(pixels), torch.tensor([[[-1.0, -0.6], [-0.2, 1.0]]]))
        torch.testing.assert_close(
            transform(pixels / 255), torch.tensor([[[-1.0, -0.6], [-0.2, 1.0]]])
        )


def test_flip_crop_gives_every_crop_of_the_image_in_its_black_margin_and_its_mirror_alike_often():
    train, _ = build_transforms("flip-crop", 8)  # a margin of one pixel
    image = torch.from_numpy(np.random.RandomState(0).randint(1, 256, (3, 8, 8), dtype=np.uint8))
    framed = np.full((3, 10, 10), -1.0)
    framed[:, 1:9, 1:9] = image.numpy() / 127.5 - 1
    crops = [framed[:, top : top + 8, left : left + 8] for top in range(3) for left in range(3)]
    allowed = np.stack([*crops, *(crop[:, :, ::-1] for crop in crops)])
    torch.manual_seed(0)
    counts = np.zeros(18, dtype=int)
    for _ in range(1800):
        distances = np.abs(allowed - train(image).numpy()).max((1, 2, 3))
        counts[distances.argmin()] += 1
        assert distances.min() < 1e-6
    assert counts.min() > 60 and counts.max() < 140
