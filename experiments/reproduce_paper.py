"""One of the paper's cells trained again and compared with its committed run.

    python experiments/reproduce_paper.py experiments/results/paper-scale --data cifar100.npz

It takes hours, which are said before it starts. Stop it whenever you like: the same command resumes
the run in AGAIN. Exit code 1 if rows differ although CPU and versions are the same.
"""

import argparse
import json
import sys
from pathlib import Path

import torch
from paper_scale import ARITHMETIC, SEED
from tune import existing

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.machine import silence_host
from avalanche_hfc.lab.read import RunData, read_runs
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.table import TableRun, train

RECIPE = "cifar100-b0-t5-icarl-resnet32@paper"
COMPARED = ["step", "classes", "images", "accuracy", "accuracy_nme", "average", "forgetting", "fh"]


def compared(was: RunData, now: RunData) -> tuple[str, bool]:
    """What the run trained again says about the committed one, and whether this is refuted."""
    conditions = {**was.versions, "machine": was.machine}
    found = {**now.versions, "machine": now.machine}
    others = [
        f"{name} was {conditions[name]}, is {found.get(name)}"
        for name in conditions
        if conditions[name] != found.get(name)
    ]
    before, after = was.steps[COMPARED], now.steps[COMPARED]
    same = before.equals(after)
    text = f"{was.recipe['name']}, seed {was.seed}: "
    text += "equal" if same else (
        f"average {before['average'].iloc[-1]:.4f} was committed, {after['average'].iloc[-1]:.4f} "
        "came out"
    )  # fmt: skip
    text += f"; trained under other conditions: {'; '.join(others)}." if others else "."
    return text, not same and not others


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=Path, help="folder of the committed runs")
    parser.add_argument("--data", type=existing, required=True, help="all of CIFAR-100")
    parser.add_argument("--recipe", default=RECIPE, metavar="NAME")
    parser.add_argument("--again", type=Path, default=Path("again"), help="where it is trained")
    arguments = parser.parse_args()
    place = Path(arguments.recipe, str(SEED))
    if not RunFolder(arguments.rows / place).finished:
        print(f"No finished run in {arguments.rows / place}: there is nothing to compare with yet.")
        return 1
    committed = read_runs([arguments.rows / place])[0][0]
    hours = committed.steps["seconds"].sum() / 3600
    print(
        f"{arguments.recipe} took {hours:.1f} hours of one core of {committed.machine}.", flush=True
    )
    silence_host()
    torch.set_num_threads(1)
    own = TableRun(override(recipe(arguments.recipe), ARITHMETIC), SEED, arguments.again / place)
    held = json.loads((committed.path / "recipe.json").read_text())["recipe"]["train"]
    if held != own.recipe.as_dict()["train"]:
        parser.error(f"{committed.path} was trained by another recipe.")
    train(own, data_root=arguments.data)
    text, refuted = compared(committed, read_runs([own.folder])[0][0])
    print(text)
    return int(refuted)


if __name__ == "__main__":
    sys.exit(main())
