"""Exemplars as pictures: the image at a position of the training stream, as the model sees it in
evaluation.
"""

from base64 import b64encode
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from avalanche_hfc.store.read import RunData

ImageAt = Callable[
    [int], Any
]  # position -> an array (h, w), (h, w, 3) or (3, h, w), of any range, or a PIL image
PicturesOfRun = Callable[
    [RunData], ImageAt | None
]  # positions follow the order of the classes, which may differ from run to run


def pictures_of_recipe(
    data_root: Path | str | None = None, *, allow_code: bool = False
) -> PicturesOfRun:
    """Show the exemplars of runs by rebuilding the benchmark from the recipe and seed of each run.

    The data must be available. Torch and Avalanche are imported.

    Args:
        data_root: The folder of the data, as in `hfc report --data`. By default the one in the
            recipe or Avalanche's folder for data.
        allow_code: Import the class that a recipe with ``module:Class`` names.

    Returns:
        A function from a run to a return value of `pictures_of`, for `write_report`.
    """

    def find(run: RunData) -> ImageAt:
        from avalanche_hfc.engine.data import build_benchmark
        from avalanche_hfc.store.data_files import read_records, refuse_other_data
        from avalanche_hfc.store.run_folder import RunFolder, recipe_of

        folder, known = RunFolder(run.path), read_records(run.path)
        recipe = recipe_of(folder, allow_code=allow_code)
        benchmark = build_benchmark(recipe, run.seed, data_root, known)
        refuse_other_data(folder, benchmark.records)
        return pictures_of(benchmark)

    return find


def pictures_of(benchmark: Any) -> ImageAt:
    """Look up training images of a benchmark by position.

    Args:
        benchmark: An Avalanche benchmark with a `train_stream`.

    Returns:
        A function from a position to an image as an array. The position of an image is the number
        of training images of earlier steps plus its index in the data set of its step.
    """
    parts = [experience.dataset for experience in benchmark.train_stream]
    ends = np.cumsum([len(part) for part in parts])

    def image_at(position: int) -> Any:
        if not 0 <= position < ends[-1]:
            raise ValueError(
                f"Position {position} is not in the benchmark: it has {ends[-1]} training "
                "images. Is it of another recipe?"
            )
        step = int(np.searchsorted(ends, position, side="right"))
        part = parts[step]
        shown = part.eval() if hasattr(part, "eval") else part
        return np.asarray(shown[position - (int(ends[step - 1]) if step else 0)][0])

    return image_at


def as_address(picture: Any, side: int = 72) -> str:
    """A PNG inside an address, at most `side` pixels wide and high; small images are enlarged
    without smoothing.
    """
    image = picture if isinstance(picture, Image.Image) else _image(np.asarray(picture))
    image = image.convert("RGB")
    factor = side / max(image.size)
    size = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    image = image.resize(
        size, Image.Resampling.NEAREST if factor >= 2 else Image.Resampling.BICUBIC
    )
    file = BytesIO()
    image.save(file, format="PNG", optimize=True)
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"


def _image(values: np.ndarray) -> Image.Image:
    """Darkest value black, brightest white: a normalised image has no other scale."""
    if values.ndim == 3 and values.shape[0] in (1, 3):
        values = values.transpose(1, 2, 0)
    if values.ndim == 3 and values.shape[2] == 1:
        values = values[:, :, 0]
    if values.dtype != np.uint8:
        low, high = float(values.min()), float(values.max())
        values = np.round((values - low) / ((high - low) or 1) * 255).astype(np.uint8)
    return Image.fromarray(values)
