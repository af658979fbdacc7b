"""What a run is, as frozen dataclasses. No torch here."""

from avalanche_hfc.recipes.demo import DEMO_METHODS, DemoRecipe

__all__ = ["DemoRecipe", "DEMO_METHODS"]
