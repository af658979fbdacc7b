"""Train the cells of the paper that one CPU core can train: ResNet-32 on all of CIFAR-100.

    python experiments/paper_scale.py --data cifar100.npz --runs runs --collected collected

Two runs train at a time, with one thread each and a low priority. Stop it whenever you like, with
Ctrl-C or kill: the same command resumes every run from its last checkpoint. A finished run is
copied to COLLECTED without its checkpoint, where `hfc table plug-and-play --scale paper --no-run`
reads it, given the options of ARITHMETIC.

The run in float32 that the others are compared with ends after its first steps. It is kept in
RUNS-float32 and COLLECTED-float32.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from tune import existing, positive

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.jobs import outcomes
from avalanche_hfc.lab.progress import Progress
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.table import TableRun, train

ARITHMETIC = {"train.precision": "bfloat16", "train.channels_last": "true"}
SEED = 0  # the paper has one run of each cell
FIRST_STEPS = 2  # of the float32 run
NICE = 10
LEFT_BEHIND = ("checkpoint", "lock", "tensorboard")


class Work(NamedTuple):
    """A run, with the folder it is copied to; it ends after `steps` steps if given."""

    run: TableRun
    target: Path
    steps: int | None

    @property
    def done(self) -> bool:
        """Whether nothing is left to train."""
        folder = RunFolder(self.run.folder)
        enough = self.steps is not None and len(folder.read("steps")) >= self.steps
        return enough or folder.finished


class Told(Progress):
    """A line for each step, and the end of a run that is not to be trained as a whole."""

    def __init__(self, work: Work):
        self.work = work

    def step(self, row: Mapping[str, object]) -> None:
        tell(f"{self.work.run}: step {row['step']}, average {row['average']}, {row['seconds']} s")
        if row["step"] + 1 == self.work.steps:
            raise Enough


class Enough(Exception):
    """As many steps are trained as were asked for."""


def queue(runs: Path, collected: Path) -> list[Work]:
    """What is trained, in this order."""
    both = ("", "+hfc")
    names = [f"cifar100-b0-t{steps}-icarl{own}" for steps in (10, 5) for own in both]
    methods = ("ssil", "podnet", "afc")
    further = [f"cifar100-b0-t5-{method}{own}" for method in methods for own in both]
    work = [work_of(name, runs, collected, ARITHMETIC) for name in names]
    work.append(work_of(names[0], beside(runs), beside(collected), {}, FIRST_STEPS))
    names = ["cifar100-b0-t1-joint", *further]
    return work + [work_of(name, runs, collected, ARITHMETIC) for name in names]


def beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-float32")


def work_of(
    name: str, runs: Path, collected: Path, values: Mapping[str, str], steps: int | None = None
) -> Work:
    chosen = override(recipe(f"{name}-resnet32@paper"), values)
    place = Path(chosen.name, str(SEED))
    return Work(TableRun(chosen, SEED, runs / place), collected / place, steps)


def do(work: Work, data: Path) -> None:
    """Train in a process of the pool."""
    with suppress(Enough):
        train(work.run, data_root=data, progress=Told(work))


def collect(work: Work) -> None:
    """Copy what is finished and not there yet."""
    if not work.done or work.target.exists():
        return
    part = work.target.with_name(f"{work.target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(work.run.folder, part, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
    part.rename(work.target)
    tell(f"{work.run}: finished, in {work.target}")


def tell(line: str) -> None:
    print(f"{datetime.now():%d %b %H:%M}  {line}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=existing, required=True, help="all of CIFAR-100: a folder or npz file"
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="run folders")
    parser.add_argument("--collected", type=Path, required=True, help="folder of finished runs")
    parser.add_argument("--jobs", type=positive, default=2, help="runs at a time")
    parser.add_argument("--first", type=positive, help="only so many of the runs")
    arguments = parser.parse_args()
    every = queue(arguments.runs, arguments.collected)[: arguments.first]
    os.nice(NICE)
    torch.set_num_threads(1)
    for work in every:
        collect(work)
    missing = [work for work in every if not work.done]
    failed = 0
    one = partial(do, data=arguments.data)
    with closing(outcomes(one, missing, jobs=arguments.jobs)) as ended:
        for work, _, error in ended:
            if error is None:
                collect(work)
            else:
                failed += 1
                tell(f"{work.run} failed: {error.strip().splitlines()[-1]}")
    tell(f"{sum(work.done for work in every)} of {len(every)} runs are finished.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
