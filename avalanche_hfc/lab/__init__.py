"""What a run is, as frozen dataclasses, and what trains, reads and compares runs. No torch here."""

from avalanche_hfc.lab.names import SCALES
from avalanche_hfc.lab.options import METHODS, MODELS, method_options, model_options
from avalanche_hfc.lab.overrides import override
from avalanche_hfc.lab.schema import (
    DataRecipe,
    MemoryRecipe,
    MethodRecipe,
    ModelRecipe,
    Recipe,
    TrainRecipe,
)
from avalanche_hfc.lab.settings import DEMO_EPOCHS, DEMO_MEMORY, all_names, recipe, untuned
from avalanche_hfc.lab.tables import DEMO_METHODS, FURTHER_TABLES, TABLES, PaperCell, TableCell

__all__ = [
    "Recipe",
    "DataRecipe",
    "ModelRecipe",
    "TrainRecipe",
    "MemoryRecipe",
    "MethodRecipe",
    "recipe",
    "untuned",
    "all_names",
    "override",
    "SCALES",
    "METHODS",
    "MODELS",
    "method_options",
    "model_options",
    "TABLES",
    "FURTHER_TABLES",
    "PaperCell",
    "TableCell",
    "DEMO_METHODS",
    "DEMO_EPOCHS",
    "DEMO_MEMORY",
]
