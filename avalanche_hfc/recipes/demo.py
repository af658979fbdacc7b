"""The demonstration: scikit-learn's digits, ten classes in five steps, twenty exemplars, four methods on the same footing."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class DemoRecipe:
    """Every value is our choice, made so that the first step is learned and a seed takes a minute or two; none was tuned for a method."""

    num_steps: int = 5
    mem_size: int = 20  # two images of each class in the end
    epochs: int = 20
    batch_size: int = 32
    lr: float = 1e-3  # AdamW
    patch_size: int = 4
    embed_dim: int = 64
    num_heads: int = 4
    msa_blocks: int = 2

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs must be 1 or more, got {self.epochs}.")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


DEMO_METHODS = {
    "hfc": "HFC",
    "herding-replay": "herding replay, cross-entropy",
    "avalanche-replay": "Avalanche Replay",
    "avalanche-naive": "Avalanche Naive",
}
