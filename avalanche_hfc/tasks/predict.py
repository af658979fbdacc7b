"""What a finished run takes images for."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from avalanche_hfc.benchmarks._decode import read_image
from avalanche_hfc.benchmarks.transforms import ON_TENSORS, PADDED_CROP_LIMIT
from avalanche_hfc.engine.data import eval_transform
from avalanche_hfc.models.modes import evaluation_mode
from avalanche_hfc.recipes import Recipe
from avalanche_hfc.tasks.finished_run import FinishedRun

Ranked = list[tuple[str, float]]


class Prediction(NamedTuple):
    """Class names, best first: `head` with probabilities (softmax over the classes learned),
    `nearest` with the cosine of the image's feature and the mean of a class's exemplars; None where
    the method has no such means.
    """

    path: Path
    head: Ranked
    nearest: Ranked | None


def predict(
    run: Path | str,
    paths: Sequence[Path | str],
    *,
    top: int = 5,
    device: str = "cpu",
    allow_code: bool = False,
) -> list[Prediction]:
    """What the finished run in this folder takes these images for, under the eval transform of its
    recipe. `allow_code` as in `FinishedRun`.
    """
    if top < 1:
        raise ValueError(f"top must be 1 or more, got {top}.")
    finished = FinishedRun(run, allow_code=allow_code)
    images = read_images(finished.recipe, paths)
    strategy = finished.strategy(device)
    ids = sorted(finished.class_names)
    names = [finished.class_names[class_id] for class_id in ids]
    predictor = strategy.predictor
    found = []
    with torch.no_grad(), evaluation_mode(predictor), evaluation_mode(strategy.model):
        for path, image in zip(paths, images, strict=True):
            batch = image[None].to(strategy.device)
            probabilities = predictor(batch)[0, ids].float().softmax(0)
            scores = strategy.nearest_scores(batch)  # -‖…‖² of unit vectors
            nearest = None if scores is None else ranked(1 + scores[0, ids] / 2, names, top)
            found.append(Prediction(Path(path), ranked(probabilities, names, top), nearest))
    return found


def ranked(values: Float[Tensor, "C"], names: Sequence[str], top: int) -> Ranked:
    best = values.topk(min(top, len(names)))
    return [
        (names[place], value)
        for place, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def read_images(
    recipe: Recipe, paths: Sequence[Path | str]
) -> list[Float[Tensor, "c height width"]]:
    """The images under the eval transform. All that cannot be read are named."""
    data = recipe.data
    transform = eval_transform(recipe)
    squash = (
        data.transforms not in ON_TENSORS and data.image_size <= PADDED_CROP_LIMIT
    )  # an eval transform that never resizes
    images, faults = [], []
    for path in paths:
        try:
            image = read_image(path, mode="L" if data.dataset == "digits" else "RGB")
        except ValueError as error:
            faults.append(f"{path} ({error})")
            continue
        images.append(
            transform(
                image.resize((data.image_size, data.image_size), Image.Resampling.BICUBIC)
                if squash
                else image
            )
        )
    if faults:
        raise ValueError(
            f"{len(faults)} of {len(paths)} images cannot be read: {', '.join(faults)}."
        )
    return images
