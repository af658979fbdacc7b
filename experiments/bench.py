"""Speed as ratios measured in one run: `make bench`.

    python experiments/bench.py [--scale] [--part NAME] [--out experiments/results/bench.csv]

CPU time of one thread, medians over repeats, the compared works in turns. With --scale the rows of
several ranks, of checkpointed activations and of many classes. With --part those of one file of
experiments/benches alone; the other rows of the table stay. A missed target stays in the table,
with its cause.
"""

import argparse
import platform
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from avalanche_hfc.lab.machine import cpu, silence_host
from avalanche_hfc.lab.rows import RowFile, read_rows

SPEED = ("losses", "model", "data", "training", "methods", "runs", "start", "arithmetic")
SCALE = ("ranks", "hardware", "steps", "many_classes")
COLUMNS = (
    "row",
    "compared_with",
    "ours",
    "reference",
    "unit",
    "ratio",
    "target",
    "met",
    "cause",
    "machine",
)
# of rows that miss their target: (beginning of the row, what it is compared with) -> cause
CAUSES = {
    (
        "memory: HFC training with checkpointed",
        "activations kept",
    ): "the gradients of the weights and the block being computed again are counted too",
    (
        "both losses",
        "loops over classes and steps",
    ): "the loop is a lean one: it passes over absent classes and shares the softmax",
    (
        "TSA block",
        "unfolded block (three projections, SDPA)",
    ): "LayerNorm of the tokens and the MLP, alike in both forms, are half of what is left",
    (
        "frozen prefix",
        "computed twice, less one prefix",
    ): "the saving came out larger than one prefix timed alone; not examined further",
    (
        "training step of podnet-cscct",
        "fine-tuning and a teacher's forward",
    ): "the terms on features and maps themselves: several passes over four maps, a tenth of a "
    "step of this small network",
    (
        "iCaRL training step",
        "float32",
    ): "on a CPU with AVX-512-BF16 and no AMX; convolutions of 16 to 64 channels are 57 % of the "
    "step in bfloat16, and compiled blocks are no faster there than torch's own kernels",
    (
        "time: both losses",
        "10 × that of C = 10000",
    ): "10,000 classes fit into the processor's cache; cross-entropy grows more",
}


def kept(results: Path, measured: list[dict[str, str]]) -> list[dict[str, str]]:
    """The rows of the table, those that were measured again in their place, new ones behind."""
    new = {(row["row"], row["compared_with"]): row for row in measured}
    old = read_rows(results) if results.exists() else []
    rows = [new.pop((row["row"], row["compared_with"]), row) for row in old]
    return [*rows, *new.values()]


def fresh(path: Path) -> Path:
    """Rows of a run that is going on stand beside the last finished table until they are
    complete.
    """
    path.unlink(missing_ok=True)
    return path


def cause_of(row) -> str:
    return next(
        (
            cause
            for (start, other), cause in CAUSES.items()
            if row.name.startswith(start) and row.compared_with == other
        ),
        "not examined",
    )


def machine() -> str:
    return f"{cpu()}, 1 thread, torch {torch.__version__}, Python {platform.python_version()}"


def rows_of(parts: Iterable[str]) -> Iterator:
    for part in parts:
        yield from import_module(f"experiments.benches.{part}").rows()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--scale", action="store_true", help="the rows of several ranks and of many classes"
    )
    parser.add_argument("--part", choices=SPEED + SCALE, help="the rows of one file alone")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where the rows go (default bench.csv, or scale.csv)",
    )
    arguments = parser.parse_args()
    scale = arguments.scale or arguments.part in SCALE
    results = arguments.out or Path("scale.csv" if scale else "bench.csv")
    silence_host()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    file = RowFile(fresh(results.with_suffix(".part")), COLUMNS)
    import_module("experiments.benches.losses").check()
    parts = [arguments.part] if arguments.part else SCALE if scale else SPEED
    for row in rows_of(parts):
        cause = "" if row.met else cause_of(row)
        print(
            f"{row.name:<65}{row.ratio:>8.2f}  target "
            f"{row.target:<12}{'met' if row.met else 'MISSED':<7}against {row.compared_with}",
            flush=True,
        )
        numbers = (f"{row.ours:.4g}", f"{row.reference:.4g}", row.unit, f"{row.ratio:.3f}")
        values = (row.name, row.compared_with, *numbers, row.target, row.met, cause, machine())
        file.extend([dict(zip(COLUMNS, values, strict=True))])
    if arguments.part:
        file.replace(kept(results, file.rows()))
    file.path.replace(results)


if __name__ == "__main__":
    main()
