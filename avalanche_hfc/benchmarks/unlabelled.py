"""Images without labels, for pre-training: all of them in memory, at one size."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor
from torchvision.transforms import functional as TF

from avalanche_hfc._names import shortened
from avalanche_hfc.benchmarks.files import read_image, scan_all
from avalanche_hfc.benchmarks.npz import load_pixels
from avalanche_hfc.benchmarks.sources import pixel_tensor

RATIOS = (3 / 4, 4 / 3)  # width to height of a random crop
CHUNK = 1024  # images resized at once


class UnlabelledImages(NamedTuple):
    """Images of one size, and what was done to get them."""

    images: UInt8[Tensor, "n 3 side side"]
    remarks: tuple[str, ...]  # one line each: what was ignored, what was resized

    def digest(self) -> str:
        """16 hexadecimal digits that change if any pixel does."""
        return hashlib.sha256(self.images.contiguous().numpy().data).hexdigest()[:16]


def read_unlabelled(path: Path | str, image_size: int) -> UnlabelledImages:
    """All training images of a folder or an npz file, resized to squares.

    Args:
        path: A folder with images at any depth, of which only `train/` is read if there is one,
            or an npz file with `x_train` of shape (n, h, w, 3) or (n, h, w).
        image_size: Side of the squares, in pixels.

    Returns:
        The images and a line for each thing ignored or resized. Labels and test images are not
        read.

    Raises:
        FileNotFoundError: Nothing is there.
        ValueError: It holds no images, or something that cannot be read as an image.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"No folder or npz file {path}.")
    remarks: list[str] = []
    read = _folder_pixels if Path(path).is_dir() else _npz_pixels
    sizes, images = set(), []
    for pixels in read(Path(path), remarks):
        sizes.add((pixels.shape[3], pixels.shape[2]))
        images.append(_square(pixels, image_size))
    if sizes != {(image_size, image_size)}:
        listed = [f"{width} × {height}" for width, height in sorted(sizes)]
        remarks.append(
            f"Images of {shortened(listed, 3)} pixels are resized to {image_size} × {image_size}."
        )
    return UnlabelledImages(torch.cat(images), tuple(remarks))


def _npz_pixels(path: Path, remarks: list[str]) -> Iterator[Tensor]:
    array, ignored = load_pixels(path)
    if ignored:
        remarks.append(f"Ignored: {', '.join(ignored)}; only x_train is read.")
    yield from pixel_tensor(array).split(CHUNK)


def _folder_pixels(path: Path, remarks: list[str]) -> Iterator[Tensor]:
    folder = path / "train" if (path / "train").is_dir() else path
    if folder != path:
        remarks.append(f"Only {folder} is read.")
    tree = scan_all(folder)
    names = tree.parts[""][""]
    bad = [f"{name} ({fault})" for fault, files in tree.bad.items() for name in files]
    if bad or not names:
        raise ValueError(
            f"{folder}: {len(names)} images; cannot be read as images: {shortened(bad) or 'none'}."
        )
    if any("/" in name for name in names):
        remarks.append("Folder names are ignored: pre-training uses no labels.")
    for name in names:
        try:
            yield TF.pil_to_tensor(read_image(folder / name)).unsqueeze(0)
        except ValueError as error:
            raise ValueError(f"{folder / name} cannot be read: {error}.") from error


def _square(pixels: Tensor, side: int) -> UInt8[Tensor, "n 3 side side"]:
    if not pixels.is_floating_point() and pixels.shape[-2:] == (side, side):
        return pixels
    scaled = pixels * 255 if pixels.is_floating_point() else pixels.float()
    if scaled.shape[-2:] != (side, side):
        scaled = TF.resize(scaled, [side, side], antialias=True)
    return scaled.round().clamp(0, 255).byte()


def random_crops(
    images: UInt8[Tensor, "b c h w"], draws: Float[Tensor, "b 5"], smallest: float
) -> Float[Tensor, "b c h w"]:
    """A random part of each image, enlarged to the size of the image, half of them mirrored.

    Args:
        images: Pixels in 0…255.
        draws: Five uniform numbers in [0, 1) per image: area, ratio, position in x and y, mirror.
        smallest: Smallest area of a part, as a share of the image; 1: the whole image.

    Returns:
        Pixels in [-1, 1], as `PlainTransform` gives them.
    """
    area = smallest + (1 - smallest) * draws[:, 0]
    low, high = np.log(RATIOS)
    ratio = torch.exp(low + (high - low) * draws[:, 1])
    width, height = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    if smallest == 1:
        width, height = torch.ones_like(width), torch.ones_like(height)
    x, y = (2 * draws[:, 2] - 1) * (1 - width), (2 * draws[:, 3] - 1) * (1 - height)
    mirrored = torch.where(draws[:, 4] < 0.5, -width, width)
    zero = torch.zeros_like(x)
    affine = torch.stack([mirrored, zero, x, zero, height, y], 1).view(-1, 2, 3)
    pixels = images.float().div_(127.5).sub_(1)
    grid = F.affine_grid(affine, list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, padding_mode="border", align_corners=False)
