"""What a finished run predicts for images."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from avalanche_hfc.benchmarks.files import IRREGULAR, OTHER_FILE, read_image, scan_all
from avalanche_hfc.lab.data import image_mode, image_transform
from avalanche_hfc.lab.trained_run import FinishedRun
from avalanche_hfc.models.modes import evaluation_mode

HEAD, NEAREST = "head", "nearest mean"  # the classifiers by name
Ranked = list[tuple[str, float]]


class Prediction(NamedTuple):
    """Class names, best first: `head` with probabilities (softmax over the classes learned),
    `nearest` with the cosine of the image's feature and the mean of a class's exemplars; None where
    the method has no such means. `by_means`: the accuracy of the run is that of the nearest means,
    which are the answer then. `error` says why an image cannot be read; it has no names then.
    """

    path: Path
    head: Ranked
    nearest: Ranked | None
    error: str | None = None
    by_means: bool = False

    @property
    def classifiers(self) -> list[tuple[str, Ranked]]:
        """What each classifier names, under its own name; first the one that the run is measured
        by, which is the answer.
        """
        both = [(HEAD, self.head), *([] if self.nearest is None else [(NEAREST, self.nearest)])]
        return both[::-1] if self.by_means else both


def predict(
    run: Path | str,
    paths: Sequence[Path | str],
    *,
    top: int = 5,
    device: str = "cpu",
    allow_code: bool = False,
) -> list[Prediction]:
    """What a finished run predicts for images, under the eval transform of its recipe.

    Args:
        run: The run folder, or the folder of a recipe that holds one run.
        paths: Images, and folders of images at any depth.
        top: Number of classes to name for each image, at least 1.
        device: Where to run the model.
        allow_code: As in `FinishedRun`.

    Returns:
        A prediction for each image, in the order given; of an image that cannot be read, the
        reason.

    Raises:
        ValueError: The run cannot be used, or a folder holds no image.
    """
    finished = FinishedRun(run, allow_code=allow_code)
    files = image_files(paths)
    mode, transform = image_mode(finished.recipe), image_transform(finished.recipe)
    strategy = finished.strategy(device)
    ids = sorted(finished.class_names)
    names = [finished.class_names[class_id] for class_id in ids]
    predictor, by_means = strategy.predictor, strategy.inference == "nme"
    predictions = []
    with torch.no_grad(), evaluation_mode(predictor), evaluation_mode(strategy.model):
        for path, fault in files:
            try:
                if fault is not None:
                    raise ValueError(fault)
                image = read_image(path, mode=mode)
            except ValueError as error:
                predictions.append(Prediction(path, [], None, str(error)))
                continue
            batch = transform(image)[None].to(strategy.device)
            probabilities = predictor(batch)[0, ids].float().softmax(0)
            scores = strategy.nearest_scores(batch)  # -‖…‖² of unit vectors
            nearest = None if scores is None else ranked(1 + scores[0, ids] / 2, names, top)
            head = ranked(probabilities, names, top)
            predictions.append(
                Prediction(path, head, nearest, by_means=by_means and nearest is not None)
            )
    return predictions


def image_files(paths: Sequence[Path | str]) -> list[tuple[Path, str | None]]:
    """The files that are named, and in the place of a folder its images at any depth. Each with the
    reason why it must not be opened, or None.
    """
    files: list[tuple[Path, str | None]] = []
    for path in map(Path, paths):
        if not path.is_dir():
            files.append((path, IRREGULAR if path.exists() and not path.is_file() else None))
            continue
        tree = scan_all(path)
        inside: list[tuple[Path, str | None]] = [(path / name, None) for name in tree.parts[""][""]]
        for fault, names in tree.bad.items():
            if fault != OTHER_FILE:
                inside += ((path / name, fault) for name in names)
        if not inside:
            raise ValueError(f"{path} holds no images.")
        files += inside
    return files


def ranked(values: Float[Tensor, "C"], names: Sequence[str], top: int) -> Ranked:
    best = values.topk(min(top, len(names)))
    return [
        (names[place], value)
        for place, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
