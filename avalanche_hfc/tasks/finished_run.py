"""A finished run in use: its recipe, its class names, its strategy with the weights of the last
step. Reading it changes nothing.
"""

import csv
from pathlib import Path

from avalanche_hfc._types import Json
from avalanche_hfc.engine.build import build_model, build_strategy, without_weights
from avalanche_hfc.engine.protocol import RunnableStrategy, runnable
from avalanche_hfc.engine.run import check_device
from avalanche_hfc.recipes import Recipe
from avalanche_hfc.recipes.describe import command
from avalanche_hfc.store.checkpoint import Damaged, read_note, read_state
from avalanche_hfc.store.run_folder import RunFolder


class FinishedRun:
    """A run folder that can be used. A ValueError or FileNotFoundError says why one cannot."""

    def __init__(self, path: Path | str):
        self.folder = RunFolder(path)
        note = self.folder.note()
        if note is None:
            raise FileNotFoundError(f"{path} is no run folder: it has no recipe.json.")
        self.note: Json = note
        self.recipe = Recipe.from_dict(note["recipe"])
        if "finished" not in note:
            way = (
                "The same `hfc learn`"
                if "learn" in self.recipe.paths
                else f"`{command(self.recipe)}`"
            )
            raise ValueError(f"{path} is not finished. {way} goes on with it.")
        if not (self.folder.checkpoints / "last").is_dir():
            raise ValueError(
                f"{path} holds no weights: {self.recipe.method.name} keeps no checkpoints."
            )
        with self.folder.csv("classes").open(newline="") as file:
            self.class_names = {int(row["class"]): row["name"] for row in csv.DictReader(file)}

    def strategy(self, device: str = "cpu") -> RunnableStrategy:
        """As it was at the end of the run."""
        recipe = without_weights(self.recipe)
        strategy = runnable(
            build_strategy(recipe, build_model(recipe), device=check_device(device))
        )
        last = self.folder.checkpoints / "last"
        try:
            state = read_state(last / "state.pt", read_note(last))
        except Damaged as error:
            raise ValueError(f"The checkpoint {last} cannot be used: {error}.") from None
        strategy.load_state_dict(state)
        return strategy
