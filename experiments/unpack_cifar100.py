"""Rewrite packed CIFAR-100 as an npz file in the layout of `split_npz`, which `--data` takes.

    python experiments/unpack_cifar100.py cifar100_subset.npz cifar100_half.npz
    python experiments/unpack_cifar100.py cifar100_subset.npz cifar100_rest.npz cifar100.npz

A packed file holds, for each class, two lossless strips, 32 pixels wide: training pictures
stacked, then test pictures, in `bytes` cut at `offsets`. One alone is written ordered by class;
several are joined in the order of the official files, by their `index_train` and `index_test`.
Recipes take the first images of each class, so that the official files give the same runs. A packed
file without `y_train` holds pictures without labels: all become x_train, which `hfc pretrain`
takes.
"""

import argparse
import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 32  # px
SPLITS = ("train", "test")


def unpacked(path: Path) -> dict[str, np.ndarray]:
    """Images and labels ordered by class, with class_names and places in the official files where
    the pack has them; x_train alone where there are no labels.
    """
    with np.load(path, allow_pickle=False) as packed:
        raw, offsets = packed["bytes"].tobytes(), packed["offsets"].tolist()
        labelled = "y_train" in packed
        arrays = {
            name: packed[name]
            for name in ("class_names", "index_train", "index_test")
            if name in packed
        }
    strips = [
        np.asarray(Image.open(io.BytesIO(raw[a:b])).convert("RGB")).reshape(-1, SIDE, SIDE, 3)
        for a, b in pairwise(offsets)
    ]
    if not labelled:
        return {"x_train": np.concatenate(strips)}
    num_classes = len(arrays["class_names"]) if "class_names" in arrays else len(strips) // 2
    if len(strips) != 2 * num_classes:
        raise SystemExit(
            f"{path} holds {len(strips)} strips for {num_classes} classes; two of each are needed."
        )
    for split, of_split in zip(SPLITS, (strips[0::2], strips[1::2]), strict=True):
        arrays[f"x_{split}"] = np.concatenate(of_split)
        arrays[f"y_{split}"] = np.repeat(np.arange(num_classes), [len(own) for own in of_split])
    return arrays


def joined(paths: Sequence[Path]) -> dict[str, np.ndarray]:
    """Packs that hold every image once between them, in the order of the official files."""
    packs = [unpacked(path) for path in paths]
    arrays = {"class_names": next(own["class_names"] for own in packs if "class_names" in own)}
    for split in SPLITS:
        places = np.concatenate([own[f"index_{split}"] for own in packs])
        order = places.argsort()
        if not np.array_equal(places[order], np.arange(len(places))):
            raise SystemExit(f"These packs do not hold each {split} image once between them.")
        for name in (f"x_{split}", f"y_{split}"):
            arrays[name] = np.concatenate([own[name] for own in packs])[order]
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packed", type=Path, nargs="+")
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    for path in arguments.packed:
        if not path.is_file():
            parser.error(f"no file {path}")
    several = len(arguments.packed) > 1
    arrays = joined(arguments.packed) if several else unpacked(arguments.packed[0])
    np.savez(
        arguments.target,
        **{name: own for name, own in arrays.items() if not name.startswith("index_")},
    )
    print(f"Wrote {arguments.target}.")


if __name__ == "__main__":
    main()
