"""Images at 32 and at 64 px, tried once on held-out training images.

    python experiments/image_size.py --data cifar100.npz --jobs 2

Runs are kept in RUNS and resumed. OUT/trials.csv has a line per trial.
"""

import sys

from tune import Grid, main

SIZES: Grid = {"data.image_size": ("32", "64"), "train.lr": ("5e-4",)}
GRIDS = {"hfc": SIZES, "ncm": {"data.image_size": SIZES["data.image_size"]}}

if __name__ == "__main__":
    sys.exit(main(GRIDS, __doc__, "image-size"))
