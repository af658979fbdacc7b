"""Rewrite a packed file of pictures without labels as an npz file with x_train, which
`hfc pretrain` takes.

    python experiments/unpack_pictures.py tiny_imagenet_unlabelled_32.npz pictures.npz

The packed file holds strips of stacked pictures, 32 pixels wide, in `bytes` cut at `offsets`.
"""

import argparse
from pathlib import Path

import numpy as np
from unpack_cifar100 import strips


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packed", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    if not arguments.packed.is_file():
        parser.error(f"no file {arguments.packed}")
    np.savez(arguments.target, x_train=np.concatenate(strips(arguments.packed)))
    print(f"Wrote {arguments.target}.")


if __name__ == "__main__":
    main()
