"""Rewrite a packed CIFAR-100 subset as an npz file in the layout of `split_npz`, which `--data`
takes.

    python experiments/unpack_cifar100.py cifar100_subset.npz cifar100.npz

The packed file holds, for each class, two lossless strips, 32 pixels wide: training pictures
stacked, then test pictures, in `bytes` cut at `offsets`. Recipes take the first images of each
class, so that the official files give the same runs. A packed file without `class_names` holds
pictures without labels: all become x_train, which `hfc pretrain` takes.
"""

import argparse
import io
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 32  # px


def unpacked(path: Path) -> dict[str, np.ndarray]:
    """x_train, y_train, x_test, y_test and class_names, ordered by class; x_train alone where there
    are no names.
    """
    with np.load(path, allow_pickle=False) as packed:
        raw, offsets, names = (
            packed["bytes"].tobytes(),
            packed["offsets"].tolist(),
            packed.get("class_names"),
        )
    strips = [
        np.asarray(Image.open(io.BytesIO(raw[a:b])).convert("RGB")).reshape(-1, SIDE, SIDE, 3)
        for a, b in pairwise(offsets)
    ]
    if names is None:
        return {"x_train": np.concatenate(strips)}
    if len(strips) != 2 * len(names):
        raise SystemExit(
            f"{path} holds {len(strips)} strips for {len(names)} classes; two of each are needed."
        )
    arrays = {"class_names": names}
    for part, of_part in (("train", strips[0::2]), ("test", strips[1::2])):
        arrays[f"x_{part}"] = np.concatenate(of_part)
        arrays[f"y_{part}"] = np.repeat(np.arange(len(names)), [len(strip) for strip in of_part])
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("packed", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    if not arguments.packed.is_file():
        parser.error(f"no file {arguments.packed}")
    np.savez(arguments.target, **unpacked(arguments.packed))
    print(f"Wrote {arguments.target}.")


if __name__ == "__main__":
    main()
