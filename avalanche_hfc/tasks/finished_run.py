"""A finished run in use: its recipe, its class names, its strategy with the weights of the last
step. Reading it changes nothing.
"""

import shlex
from pathlib import Path
from typing import NamedTuple

from avalanche_hfc._types import Json
from avalanche_hfc.engine.build import (
    build_model,
    build_strategy,
    for_any_device,
    without_weights,
)
from avalanche_hfc.engine.protocol import RunnableStrategy, runnable
from avalanche_hfc.engine.run import check_device, load_state
from avalanche_hfc.recipes import Recipe
from avalanche_hfc.store.checkpoint import read_checkpoint
from avalanche_hfc.store.checkpoint_note import Damaged
from avalanche_hfc.store.run_folder import RunFolder, recipe_of


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
            raise FileNotFoundError(f"{path} is no run folder: it has no recipe.json.")
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

    def strategy(self, device: str = "cpu") -> RunnableStrategy:
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
