"""How much the weight alignment of WA has to align: its factor γ after each step, on held-out
training images, with the tuned values and with SGD, which its authors use.

    python experiments/alignment.py --data cifar100.npz

A run is trained from its start each time. OUT/alignment.csv has a line per run and step.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from unittest.mock import patch

import pandas as pd
from tune import SEED, Trial, existing, run_of

from avalanche_hfc.lab.machine import silence_host
from avalanche_hfc.lab.published import TUNED
from avalanche_hfc.lab.rows import replace_file
from avalanche_hfc.lab.table import train

if TYPE_CHECKING:
    from torch import Tensor

ALIGNED = "avalanche_hfc.strategies.wa.alignment_factor"
WA_VALUES = tuple((leaf, str(value).lower()) for leaf, value in TUNED["wa"].items())
TRIALS = {
    "AdamW, tuned": Trial("wa", WA_VALUES),
    **{
        f"SGD, rate {rate}": Trial(
            "wa",
            (
                ("train.optimizer", "sgd"),
                ("train.momentum", "0.9"),
                ("train.weight_decay", "2e-4"),
                ("train.lr", rate),
            ),
        )
        for rate in ("0.01", "0.05")
    },
}


def factors(trial: Trial, data: Path, changed: Mapping[str, str]) -> pd.DataFrame:
    """A line per step: its factor, which the first has not, accuracy and seconds."""
    from avalanche_hfc.strategies.wa import alignment_factor

    found = [float("nan")]

    def noted(weight: "Tensor", steps: "Tensor") -> "Tensor":
        factor = alignment_factor(weight, steps)
        found.append(float(factor))
        return factor

    with TemporaryDirectory() as folder, patch(ALIGNED, noted):
        run = run_of(trial, SEED, Path(folder), changed)
        train(run, data_root=data)
        rows = pd.read_csv(run.folder / "steps.csv")
    return rows[["step", "accuracy", "seconds"]].assign(factor=found)


def main() -> int:
    import torch

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=existing, required=True, help="CIFAR-100: a folder or npz file"
    )
    parser.add_argument("--out", type=Path, default=Path("alignment"), help="folder of the file")
    arguments = parser.parse_args()
    silence_host()
    torch.set_num_threads(1)
    lines = [
        factors(trial, arguments.data, {}).assign(training=name, seed=SEED)
        for name, trial in TRIALS.items()
    ]
    arguments.out.mkdir(parents=True, exist_ok=True)
    columns = ["training", "seed", "step", "factor", "accuracy", "seconds"]
    file = arguments.out / "alignment.csv"
    replace_file(file, pd.concat(lines)[columns].to_csv(index=False))
    print(f"Wrote {file}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
