"""Augmentation, tried once for all methods on held-out training images.

    python experiments/augmentation.py --data cifar100.npz --jobs 2

Runs are kept in RUNS and resumed. OUT/trials.csv has a line per trial. docs/protocol.md says how
the result is used.
"""

import sys

from tune import Grid, main

AUGMENTATION: Grid = {"data.transforms": ("plain", "flip-crop"), "train.lr": ("5e-4",)}
GRIDS = dict.fromkeys(("hfc", "herding-replay", "podnet"), AUGMENTATION)

if __name__ == "__main__":
    sys.exit(main(GRIDS, __doc__, "augmentation"))
