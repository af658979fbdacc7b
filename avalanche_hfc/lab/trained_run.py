"""The model of a finished run, in Python: `load_run`."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from avalanche_hfc._types import Json, Strategy
from avalanche_hfc.benchmarks.transforms import Transform
from avalanche_hfc.lab import Recipe
from avalanche_hfc.lab.build import (
    build_model,
    build_strategy,
    for_any_device,
    without_weights,
)
from avalanche_hfc.lab.checkpoint import read_checkpoint
from avalanche_hfc.lab.data import image_mode, image_transform
from avalanche_hfc.lab.protocol import runnable
from avalanche_hfc.lab.rows import Damaged
from avalanche_hfc.lab.run import check_device, load_state
from avalanche_hfc.lab.run_folder import RunFolder, recipe_of
from avalanche_hfc.models.heads import closeness
from avalanche_hfc.plugins.features import feature_function


class HeldRun(NamedTuple):
    """A run that is on the disk, finished or not: its folder, what recipe.json holds, its
    recipe.
    """

    folder: RunFolder
    note: Json
    recipe: Recipe


def read_run(path: Path | str, *, allow_code: bool = False) -> HeldRun:
    """The run of a run folder, or of the folder of a recipe that holds one run.

    Args:
        path: The folder.
        allow_code: As in `FinishedRun`.

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
    metadata = folder.metadata()
    assert metadata is not None
    return HeldRun(folder, metadata, recipe_of(folder, allow_code=allow_code))


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
        try:
            rows = self.folder.read("classes")
            self.class_names = {int(row["class"]): row["name"] for row in rows}
            self.steps = {int(row["class"]): int(row["brought_in"]) for row in rows}
        except LookupError:
            raise ValueError(
                f"{self.folder.csv('classes')} has no column class, name or brought_in."
            ) from None

    def strategy(self, device: str = "cpu") -> Strategy:
        """As it was at the end of the run."""
        recipe = for_any_device(without_weights(self.recipe))
        strategy = runnable(
            build_strategy(recipe, build_model(recipe), device=check_device(device))
        )
        last = self.folder.checkpoints / "last"
        try:
            checkpoint = read_checkpoint(last)
        except Damaged as error:
            raise ValueError(f"The checkpoint {last} cannot be used: {error}.") from None
        load_state(strategy, checkpoint, self.folder)
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
