"""A finished run in use: its recipe, its class names, its strategy with the weights of the last
step. Reading it changes nothing.
"""

from pathlib import Path

import torch

from avalanche_hfc._types import Json
from avalanche_hfc.engine.build import build_model, build_strategy, without_weights
from avalanche_hfc.engine.protocol import RunnableStrategy, runnable
from avalanche_hfc.engine.run import load_state
from avalanche_hfc.recipes.describe import command
from avalanche_hfc.store.checkpoint import read_checkpoint
from avalanche_hfc.store.checkpoint_note import Damaged
from avalanche_hfc.store.run_folder import RunFolder, recipe_of


class FinishedRun:
    """A run folder that can be used. A ValueError or FileNotFoundError says why one cannot.

    Args:
        path: The run folder.
        allow_code: Whether to import the class that a recipe with `module:Class` names. Leave it
            False for a folder that you did not make: importing runs the module's code.
    """

    def __init__(self, path: Path | str, *, allow_code: bool = False):
        self.folder = RunFolder(path)
        note = self.folder.note()
        if note is None:
            raise FileNotFoundError(f"{path} is no run folder: it has no recipe.json.")
        self.note: Json = note
        self.recipe = recipe_of(self.folder, allow_code=allow_code)
        if "finished" not in note:
            way = (
                "The same `hfc learn`"
                if "learn" in self.recipe.paths
                else f"`{command(self.recipe)}`"
            )
            raise ValueError(f"{path} is not finished. {way} resumes it.")
        if not (self.folder.checkpoints / "last").is_dir():
            raise ValueError(
                f"{path} holds no weights: {self.recipe.method.name} keeps no checkpoints."
            )
        try:
            rows = self.folder.read("classes")
            self.class_names = {int(row["class"]): row["name"] for row in rows}
        except LookupError:
            raise ValueError(f"{self.folder.csv('classes')} has no column class or name.") from None

    def strategy(self, device: str | torch.device = "cpu") -> RunnableStrategy:
        """As it was at the end of the run."""
        recipe = without_weights(self.recipe)
        strategy = runnable(build_strategy(recipe, build_model(recipe), device=device))
        last = self.folder.checkpoints / "last"
        try:
            checkpoint = read_checkpoint(last)
        except Damaged as error:
            raise ValueError(f"The checkpoint {last} cannot be used: {error}.") from None
        load_state(strategy, checkpoint, self.folder)
        return strategy
