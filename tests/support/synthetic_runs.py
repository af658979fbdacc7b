"""RunData folders with made-up but plausible numbers, the same on every machine: two recipes × three
seeds, ten or a hundred classes.

The files agree with each other as those of a run do: correct counts are the diagonal of the
confusion, accuracies follow from the counts.
"""

import json
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
KINDS = (
    "apple",
    "bear",
    "bottle",
    "bus",
    "castle",
    "clock",
    "dolphin",
    "maple tree",
    "pickup truck",
    "sweet pepper",
)
HUNDRED = tuple(f"{kind} {number}" for number in range(1, 11) for kind in KINDS)
METHODS = {
    "hfc": (0.06, 0.16),
    "herding-replay": (0.13, 0.25),
    "finetune": (0.5, 0.9),
    "icarl": (0.08, 0.2),
    "podnet": (0.1, 0.22),
    "foster": (0.07, 0.18),
}  # share of its accuracy a class loses per step


def recipe(name, method, names, num_steps, mem_size=2000):
    dataset = "digits" if len(names) == 10 else "cifar100"
    weights = (
        {"compensation_weight": "balanced", "relation_weight": "balanced"}
        if method == "hfc"
        else {}
    )
    return {
        "name": name,
        "scale": "paper" if dataset == "cifar100" else "demo",
        "data": {
            "dataset": dataset,
            "num_steps": num_steps,
            "base_fraction": 0.0,
            "class_order": "paper",
            "image_size": 224,
        },
        "model": {"backbone": "vit-base", "tsa_blocks": 1, "weights": "timm"},
        "train": {"epochs": 6, "batch_size": 64, "lr": 6.25e-5, "optimizer": "adamw"},
        "memory": {"mem_size": mem_size, "per_class": None, "rule": "greedy"},
        "method": {"name": method, "losses": "host", **weights},
        "sources": {
            "data.num_steps": "Sec. 4.1",
            "train.lr": "released code; the text says SGD",
            "train.epochs": "our choice",
        },
    }


def write_run(
    folder,
    method="hfc",
    seed=0,
    names=DIGITS,
    num_steps=5,
    *,
    nme=True,
    shuffled=False,
    per_class=50,
):
    """One run folder; gives its path."""
    random = np.random.default_rng([zlib.crc32(method.encode()), seed, len(names)])
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    order = (
        np.random.default_rng(seed).permutation(len(names)) if shuffled else np.arange(len(names))
    )
    brought_in = np.empty(len(names), dtype=int)
    for step, own in enumerate(np.array_split(order, num_steps)):
        brought_in[own] = step
    name = f"{'digits' if len(names) == 10 else 'cifar100'}-b0-t{num_steps}-{method}@{'demo' if len(names) == 10 else 'paper'}"
    held = {
        "recipe": recipe(name, method, names, num_steps),
        "seed": seed,
        "versions": {
            "avalanche_hfc": "0.2.0",
            "torch": "2.14.1",
            "avalanche-lib": "0.6.0",
            "timm": "1.0.30",
            "python": "3.11.2",
        },
        "machine": "x86_64, 2 threads",
        "finished": "2026-11-01T12:00:00+00:00",
    }
    (folder / "recipe.json").write_text(json.dumps(held, indent=2))
    confusions = list(_confusions(random, brought_in, METHODS[method], per_class))
    classes = pd.concat(
        [
            _class_rows(random, step, counts, names, brought_in, nme)
            for step, counts in enumerate(confusions)
        ]
    )
    classes.to_csv(folder / "classes.csv", index=False)
    _step_rows(classes, len(names)).to_csv(folder / "steps.csv", index=False)
    cells = [
        (step, *cell, counts[tuple(cell)])
        for step, counts in enumerate(confusions)
        for cell in np.argwhere(counts)
    ]
    pd.DataFrame(cells, columns=["step", "class", "predicted", "count"]).to_csv(
        folder / "confusion.csv", index=False
    )
    _exemplar_rows(random, brought_in).to_csv(folder / "exemplars.csv", index=False)
    _train_rows(random, num_steps, method).to_csv(folder / "train.csv", index=False)
    return folder


def write_runs(root, methods=("hfc", "herding-replay"), seeds=(0, 1, 2), **options):
    """runs/<recipe>/<seed> for each; gives the paths."""
    return [
        write_run(Path(root) / method / str(seed), method, seed, **options)
        for method in methods
        for seed in seeds
    ]


def _confusions(random, brought_in, losing, per_class):
    """Images of class (row) predicted as class (column), one matrix per step. A class loses a share of
    its accuracy in each later step.
    """
    num_classes = len(brought_in)
    first = random.uniform(0.8, 0.98, num_classes)
    kept = 1 - random.uniform(*losing, num_classes)
    for step in range(brought_in.max() + 1):
        counts = np.zeros((num_classes, num_classes), dtype=int)
        for own in np.flatnonzero(brought_in <= step):
            accuracy = first[own] * kept[own] ** (step - brought_in[own])
            others = np.flatnonzero((brought_in <= step) & (np.arange(num_classes) != own))
            attraction = (1 + brought_in[others]) ** 1.5 / (
                1 + np.abs(others - own)
            ) ** 1.2  # new classes and neighbours
            share = np.zeros(num_classes)
            share[own] = accuracy
            share[others] = (1 - accuracy) * attraction / attraction.sum()
            counts[own] = random.multinomial(per_class, share / share.sum())
        yield counts


def _class_rows(random, step, counts, names, brought_in, nme):
    seen = np.flatnonzero(brought_in <= step)
    correct, total = counts.diagonal()[seen], counts.sum(1)[seen]
    wrong = 1 - correct / total
    gradient = wrong * 0.9 + 0.04
    nearest = np.minimum(total, correct + random.integers(-3, 6, len(seen))).clip(0)
    return pd.DataFrame(
        {
            "step": step,
            "class": seen,
            "name": [names[own] for own in seen],
            "brought_in": brought_in[seen],
            "correct": correct,
            "correct_nme": nearest if nme else np.nan,
            "total": total,
            "gradient_sum": gradient * total,
            "gradient_square_sum": (gradient**2 + 0.3 * wrong * (1 - wrong)) * total,
        }
    )


def _step_rows(classes, num_classes):
    rows = []
    table = classes.assign(accuracy=classes["correct"] / classes["total"]).pivot(
        index="step", columns="class", values="accuracy"
    )
    for step, own in classes.groupby("step"):
        groups = own.groupby("brought_in")[["total", "gradient_sum", "gradient_square_sum"]].sum()
        within = groups["gradient_square_sum"] - groups["gradient_sum"] ** 2 / groups["total"]
        old = own.loc[own["brought_in"] < step, "class"]
        images = int(own["total"].sum())
        rows.append(
            {
                "step": step,
                "classes": len(own),
                "images": images,
                "accuracy": own["correct"].sum() / images,
                "accuracy_nme": own["correct_nme"].sum(min_count=1) / images,
                "forgetting": (table.loc[: step - 1, old].max() - table.loc[step, old]).mean(),
                "fh": within.sum() / images,
                "seconds": 12.5 + step,
                "images_per_second": 210.0 - step,
                "peak_memory": 1_500_000_000 + 1_000_000 * step,
            }
        )
    steps = pd.DataFrame(rows)
    steps.insert(5, "average", steps["accuracy"].expanding().mean())
    return steps


def _exemplar_rows(random, brought_in, mem_size=200):
    rows = []
    for step in range(brought_in.max() + 1):
        seen = np.flatnonzero(brought_in <= step)
        share = max(1, mem_size // len(seen))
        rows += [
            (step, own, rank, int(own) * 500 + (rank * 37 + int(own) * 11) % 500)
            for own in seen
            for rank in range(share)
        ]
    return pd.DataFrame(rows, columns=["step", "class", "rank", "position"])


def _train_rows(random, num_steps, method, epochs=6):
    rows = []
    for step in range(num_steps):
        for epoch in range(epochs):
            fading = np.exp(-epoch / 2.5)
            row = {
                "step": step,
                "phase": "train",
                "epoch": epoch,
                "lr": 6.25e-5 * (1 - epoch / epochs),
            }
            row["loss_total"] = row["loss_cross_entropy"] = (
                (2.1 - 0.1 * step) * fading + 0.12 + random.uniform(0, 0.04)
            )
            if method == "hfc":
                row["loss_compensation"] = row["loss_cross_entropy"] * 0.05 * step
                row["loss_relation"] = (
                    0.0 if step == 0 else 0.5 * fading + 0.08 + random.uniform(0, 0.02)
                )
                row["loss_total"] += row["loss_compensation"] + row["loss_relation"]
                row["weight_spread"] = (
                    0.0 if step == 0 else 0.25 + 0.05 * epoch + random.uniform(0, 0.03)
                )
                row["alone_fraction"] = 0.0 if step == 0 else 0.03 * step + random.uniform(0, 0.01)
            row |= {
                "accuracy": np.nan,
                "images_per_second": 210.0,
                "digest": f"{zlib.crc32(f'{method}{step}{epoch}'.encode()):08x}",
            }
            rows.append(row)
    return pd.DataFrame(rows)
