"""The model of a finished run: in Python by `load_run`, on images by `predict`, as a file by
`export`.
"""

import json
import logging
import os
import shlex
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors.torch import save_model
from torch import Tensor, nn

from avalanche_hfc._names import lookup
from avalanche_hfc._types import Json, Strategy
from avalanche_hfc.benchmarks.files import IRREGULAR, OTHER_FILE, read_image, scan_all
from avalanche_hfc.benchmarks.transforms import Transform
from avalanche_hfc.lab import Recipe
from avalanche_hfc.lab.build import (
    build_model,
    build_strategy,
    for_any_device,
    runnable,
    without_weights,
)
from avalanche_hfc.lab.checkpoint import load_state, read_checkpoint
from avalanche_hfc.lab.data import image_mode, image_transform
from avalanche_hfc.lab.ranks import check_device
from avalanche_hfc.lab.rows import Damaged
from avalanche_hfc.lab.run_folder import RunFolder, recipe_of
from avalanche_hfc.models.heads import closeness
from avalanche_hfc.models.modes import evaluation_mode
from avalanche_hfc.plugins.features import feature_function


def read_run(path: Path | str, *, allow_code: bool = False) -> tuple[RunFolder, Json, Recipe]:
    """The run of a run folder, or of the folder of a recipe that holds one run, finished or not.

    Args:
        path: The folder.
        allow_code: As in `FinishedRun`.

    Returns:
        Its folder, what recipe.json holds, and its recipe.

    Raises:
        FileNotFoundError: There is no run.
        ValueError: There are several runs, or recipe.json cannot be read.
    """
    path = Path(path)
    if not (path / "recipe.json").exists():
        inside = [file.parent for file in sorted(path.glob("[!.]*/recipe.json"))]
        if not inside:
            raise FileNotFoundError(f"{path} is not a run folder: it has no recipe.json.")
        if len(inside) > 1:
            raise ValueError(
                f"{path} holds {len(inside)} runs. Choose one: {', '.join(map(str, inside))}."
            )
        path = inside[0]
    folder = RunFolder(path)
    recipe = recipe_of(folder, allow_code=allow_code)
    return folder, folder.metadata() or {}, recipe


class FinishedRun:
    """A run folder that can be used. A ValueError or FileNotFoundError says why one cannot.

    Args:
        path: The run folder.
        allow_code: Whether to import the class that a recipe with `module:Class` names. Leave it
            False for a folder that you did not make: importing runs the module's code.
    """

    def __init__(self, path: Path | str, *, allow_code: bool = False):
        self.folder, self.note, self.recipe = read_run(path, allow_code=allow_code)
        path = self.folder.path
        if "finished" not in self.note:
            raise ValueError(
                f"{path} is not finished. To resume it: {shlex.join(['hfc', 'resume', str(path)])}"
            )
        if not (self.folder.checkpoints / "last").is_dir():
            raise ValueError(
                f"{path} holds no weights: {self.recipe.method.name} keeps no checkpoints."
            )
        rows = self.folder.read("classes")
        self.class_names = {int(row["class"]): row["name"] for row in rows}
        self.steps = {int(row["class"]): int(row["brought_in"]) for row in rows}

    def strategy(self, device: str = "cpu") -> Strategy:
        """As it was at the end of the run."""
        recipe = for_any_device(without_weights(self.recipe))
        built = build_strategy(recipe, build_model(recipe), device=check_device(device))
        strategy = runnable(built)
        last = self.folder.checkpoints / "last"
        try:
            checkpoint = read_checkpoint(last)
        except Damaged as error:
            raise ValueError(f"The checkpoint {last} cannot be used: {error}.") from None
        load_state(strategy, checkpoint, last)
        return strategy


class FeatureExtractor(nn.Module):
    """The model of a strategy without its classifier.

    Shape:
        Images ``(b, c, height, width)`` in, features ``(b, D)`` out.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, images: Float[Tensor, "b c height width"]) -> Float[Tensor, "b D"]:
        return feature_function(self.model)(images).flatten(1)


class NearestMeanClassifier(nn.Module):
    """Minus the squared distance between the unit feature of an image and the mean of each class.

    Shape:
        Images ``(b, c, height, width)`` in, logits ``(b, C)`` out.
    """

    means: Tensor

    def __init__(self, embed: FeatureExtractor, means: Float[Tensor, "C D"]):
        super().__init__()
        self.embed = embed
        self.register_buffer("means", means)

    def forward(self, images: Float[Tensor, "b c height width"]) -> Float[Tensor, "b C"]:
        return closeness(F.normalize(self.embed(images).float()) @ self.means.T)


@dataclass(frozen=True)
class TrainedRun:
    """The model of a finished run, and what is needed to use it.

    Attributes:
        folder: The run folder.
        model: Images ``(b, c, height, width)`` to logits ``(b, C)``, in evaluation mode. Its
            largest logit is the class that the run predicts in evaluation: if it predicts by the
            nearest mean of exemplars, logits are minus the squared distances to the means.
        embed: Images to features ``(b, D)``, the input of the classifier. It shares the weights of
            `model`.
        class_names: The name of the class of each logit.
        transform: A PIL image of any size to a tensor ``(c, height, width)`` for `model`.
        steps: Class name to the step that brought it, from 0.
        exemplars: Class name to the positions of its exemplars in the training data, best first;
            empty if the method keeps none.
        input_shape: ``(c, height, width)`` of one image for `model`.
    """

    folder: Path
    model: nn.Module
    embed: nn.Module
    class_names: tuple[str, ...]
    transform: Transform
    steps: Mapping[str, int]
    exemplars: Mapping[str, tuple[int, ...]]
    input_shape: tuple[int, int, int]


def load_run(path: Path | str, *, device: str = "cpu", allow_code: bool = False) -> TrainedRun:
    """Load the model of a finished run of `hfc run` or `hfc learn`.

    Args:
        path: The run folder, or the folder of a recipe that holds one run. It is only read.
        device: Where the model is to be.
        allow_code: Import the class of a run whose method is ``module:Class``. Leave it False for a
            folder that you did not make: importing runs the module's code.

    Returns:
        The model with its class names, transform, steps and exemplars.

    Raises:
        FileNotFoundError: There is no run.
        ValueError: The run is not finished, it holds no weights, or it names code.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from avalanche_hfc.lab.run import run
        >>> from avalanche_hfc.lab import override, recipe
        >>> short = override(recipe("digits-b0-t5-hfc@demo"), {"epochs": "1"})
        >>> with TemporaryDirectory() as folder:
        ...     run(short, 0, folder)
        ...     trained = load_run(folder)
        >>> images = torch.zeros(2, *trained.input_shape)
        >>> trained.model(images).shape, len(trained.class_names)
        (torch.Size([2, 10]), 10)
        >>> trained.embed(images).shape
        torch.Size([2, 64])
    """
    finished = FinishedRun(path, allow_code=allow_code)
    strategy = finished.strategy(device)
    ids = sorted(finished.class_names)
    names = [finished.class_names[class_id] for class_id in ids]
    embed = FeatureExtractor(strategy.model)
    side = finished.recipe.data.image_size
    return TrainedRun(
        folder=finished.folder.path,
        model=classifier(strategy, embed, ids).eval(),
        embed=embed.eval(),
        class_names=tuple(names),
        transform=image_transform(finished.recipe),
        steps={name: finished.steps[class_id] for name, class_id in zip(names, ids, strict=True)},
        exemplars={
            finished.class_names[class_id]: tuple(positions.tolist())
            for class_id, positions in sorted(strategy.exemplars().items())
        },
        input_shape=(1 if image_mode(finished.recipe) == "L" else 3, side, side),
    )


def classifier(strategy: Strategy, embed: FeatureExtractor, ids: list[int]) -> nn.Module:
    """The module that predicts as the strategy does in evaluation."""
    if strategy.inference != "nme":
        return strategy.predictor
    means = strategy.class_means()
    assert means is not None
    return NearestMeanClassifier(embed, torch.stack([means[class_id] for class_id in ids]))


# On images

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

    def answer(path: Path, fault: str | None) -> Prediction:
        try:
            if fault is not None:
                raise ValueError(fault)
            image = read_image(path, mode=mode)
        except ValueError as error:
            return Prediction(path, [], None, str(error))
        batch = transform(image)[None].to(strategy.device)
        head = ranked(predictor(batch)[0, ids].float().softmax(0), names, top)
        scores = strategy.nearest_scores(batch)  # -‖…‖² of unit vectors
        nearest = None if scores is None else ranked(1 + scores[0, ids] / 2, names, top)
        return Prediction(path, head, nearest, by_means=by_means and nearest is not None)

    with torch.no_grad(), evaluation_mode(predictor), evaluation_mode(strategy.model):
        return [answer(path, fault) for path, fault in files]


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
    best, places = values.topk(min(top, len(names)))
    return [(names[k], value) for k, value in zip(places.tolist(), best.tolist(), strict=True)]


# As a file

INPUT, OUTPUT = "images", "logits"


def export(
    run: Path | str, to: str, out: Path | str | None = None, *, allow_code: bool = False
) -> Path:
    """Write the model of a finished run to a file, images to logits, with its class names.

    Args:
        run: The run folder, or the folder of a recipe that holds one run.
        to: "onnx", "torchscript", or "safetensors" for the weights alone.
        out: The file. None: model.onnx, model.pt or model.safetensors in the run folder.
        allow_code: As in `load_run`.

    Returns:
        The file.

    Raises:
        FileExistsError: The file is there already.
        ValueError: The format is unknown, what it needs is not installed, or the run cannot be
            used.
    """
    suffix, write = lookup(FORMATS, to, "format")
    if to == "onnx" and not all(map(find_spec, ("onnx", "onnxscript"))):
        raise ValueError(
            "Export to onnx needs onnx and onnxscript: pip install avalanche_hfc[onnx]."
        )
    trained = load_run(run, allow_code=allow_code)
    file = trained.folder / f"model{suffix}" if out is None else Path(out)
    if file.exists():
        raise FileExistsError(f"{file} exists already. Move it, or choose another file.")
    with TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as aside, torch.no_grad():
        write(trained, Path(aside) / file.name)
        os.rename(Path(aside) / file.name, file)
    return file


def example(trained: TrainedRun) -> torch.Tensor:
    """Two images: of a single one, exporters take the batch for a constant."""
    return torch.zeros(2, *trained.input_shape)


def about(trained: TrainedRun) -> dict[str, str]:
    """What a file says of its model, as texts."""
    return {
        "class_names": json.dumps(trained.class_names, ensure_ascii=False),
        "input_shape": json.dumps(trained.input_shape),
    }


def write_onnx(trained: TrainedRun, file: Path) -> None:
    logging.getLogger("onnxscript.optimizer").setLevel(logging.ERROR)  # what it leaves as it is
    program: Any = torch.onnx.export(
        trained.model,
        (example(trained),),
        dynamo=True,
        input_names=[INPUT],
        output_names=[OUTPUT],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        verbose=False,
    )
    program.model.metadata_props.update(about(trained))
    program.save(file, external_data=False)


def write_torchscript(trained: TrainedRun, file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # checks of shapes
        warnings.simplefilter("ignore", FutureWarning)  # torch.export is recommended in its place
        script = torch.jit.trace(trained.model, example(trained))
        torch.jit.save(script, file, _extra_files=about(trained))


def write_safetensors(trained: TrainedRun, file: Path) -> None:
    save_model(trained.model, str(file), metadata=about(trained))


FORMATS: dict[str, tuple[str, Callable[[TrainedRun, Path], None]]] = {
    "onnx": (".onnx", write_onnx),
    "torchscript": (".pt", write_torchscript),
    "safetensors": (".safetensors", write_safetensors),
}
