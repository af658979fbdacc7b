"""The splits: a data set dealt out over steps by class, as Avalanche's `nc_benchmark` gives it. A label is the original class id.

All take the same arguments.
`num_steps`: equal steps; with `base_fraction=0.5` a base step with half of the classes comes first and is not counted.
`class_order`: "paper", a name of `CLASS_ORDERS`, a sequence of all class ids, or None for a permutation drawn by `seed`, the only use of it.
`transforms`: a name of `TRANSFORMS`. `image_size=None`: 224 px with "official", else as the data has it.
The benchmark also carries `class_names`, indexed by class id, and `image_shape`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from avalanche.benchmarks.scenarios.deprecated.new_classes import NCScenario
from sklearn.datasets import load_digits

from avalanche_hfc.benchmarks._images import Source, TensorImages
from avalanche_hfc.benchmarks._plan import Plan, make_benchmark


def split_digits(
    root: None = None, *, num_steps: int, base_fraction: float = 0.0, class_order: str | Sequence[int] | None = None,
    transforms: str = "plain", image_size: int | None = None, seed: int = 0, download: bool = False,
) -> NCScenario:
    """scikit-learn's 1797 digits, 10 classes, 1 x 8 x 8 in [-1, 1]. They come with scikit-learn: no `root`, nothing to download.

    Every fifth image of a class, in scikit-learn's order, is a test image, whatever the seed.
    """
    plan = Plan(num_steps, base_fraction, class_order, transforms, image_size, seed)
    return make_benchmark(_read_digits(), plan)


def _read_digits() -> Source:
    pixels, targets = load_digits(return_X_y=True)
    images = torch.from_numpy(pixels).float().view(-1, 1, 8, 8) / 16      # stored as 0..16
    is_test = every_fifth(targets)
    train, test = (TensorImages(images[part], targets[part]) for part in (~is_test, is_test))
    return Source(train=train, test=test, class_names=tuple("0123456789"), image_size=8, num_channels=1)


def every_fifth(targets: np.ndarray) -> np.ndarray:
    """(n,) bool: the fifth, tenth, … sample of each class."""
    chosen = np.zeros(len(targets), dtype=bool)
    for class_id in np.unique(targets):
        chosen[np.flatnonzero(targets == class_id)[4::5]] = True
    return chosen
