"""What a report says of a recipe and of a number, in words."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from avalanche_hfc._types import Json, Record
from avalanche_hfc.report.comparisons import Comparison, recipe_section
from avalanche_hfc.report.tables import KEYS
from avalanche_hfc.store.read import shared_name

DEFINITIONS = {
    "average": ("average %", "mean over all steps of the accuracy on the classes seen by then"),
    "last": ("last %", "accuracy on all classes after the last step"),
    "last_nme": (
        "last by nearest mean %",
        "the same, where an image gets the class whose mean feature is nearest",
    ),
    "forgetting": (
        "forgetting, points",
        "best earlier accuracy of a class − its last, mean over the classes of earlier steps",
    ),
    "fh": (
        "FH × 1000",
        "variance of 1 − p(true class) among the images of one step's classes, mean over the "
        "steps; low is even",
    ),
    "seconds": ("training", "time of all steps of a run, evaluation apart"),
}


def paper_keys(recipe: Record) -> Json | None:
    """The keys of the paper's numbers for a recipe (without `column`); None for a recipe that is
    none of the paper's cells.
    """
    data, model, memory, method = (
        recipe.get(part) for part in ("data", "model", "memory", "method")
    )
    if (
        not all(isinstance(part, Mapping) for part in (data, model, memory, method))
        or recipe.get("scale") != "paper"
    ):
        return None
    row, losses = method.get("name"), method.get("losses", "host")  # type: ignore[union-attr]
    if row == "baseline":
        parts = ["tsa"] * (model.get("kind") == "tsavit") + ["gfc"] * (losses == "gfc")  # type: ignore[union-attr]
        row, losses = "+".join(["baseline", *parts]), "host"
    keys = {"row": row, "losses": losses, "backbone": _backbone(model)}  # type: ignore[arg-type]
    keys |= {key: data.get(key) for key in ("dataset", "base_fraction", "num_steps")}  # type: ignore[union-attr]
    keys |= {key: memory.get(key) for key in ("mem_size", "per_class")}  # type: ignore[union-attr]
    return {key: keys[key] for key in KEYS if key != "column"}


def _backbone(model: Record) -> str:
    model_kind = str(model.get("kind", ""))
    backbone = str(model.get("backbone", model_kind))
    if backbone.startswith("vit_base") and model.get("embed_dim") is None:
        return "vit-base"
    return {"resnet32": "resnet-32", "resnet18": "resnet-18", "convit": "vit-tiny"}.get(
        model_kind, backbone
    )


def title(folders: Sequence[Path]) -> str:
    """The name of the folder that a report is about.

    Args:
        folders: Run folders, or folders of them, as the user gave them.

    Returns:
        The folder's name; a run folder has its recipe's before it. Of several folders the names,
        or the name of the folder that they share.
    """
    names = [
        f"{path.parent.name}/{path.name}" if (path / "recipe.json").is_file() else path.name
        for path in (folder.resolve() for folder in folders)
    ]
    if len(names) <= 3:
        return ", ".join(names)
    return Path(os.path.commonpath([folder.resolve() for folder in folders])).name or names[0]


def subtitle(comparisons: Sequence[Comparison]) -> str:
    """What was trained, how often, when and where."""
    groups = [group for comparison in comparisons for group in comparison.groups]
    runs = [run for group in groups for run in (*group.runs, *group.unfinished)]
    if len(comparisons) == 1:
        classes = sorted({int(group.runs[0].steps["classes"].max()) for group in groups})
        steps = sorted({group.last_step + 1 for group in groups})
        seeds = sorted({len(group.runs) for group in groups})
        data = recipe_section(groups[0].recipe, "data").get("dataset")
        text = (
            f"What was learned and what was forgotten: {f'{data}, ' if data else ''}"
            f"{_counted(classes, 'class', 'classes')}, {_counted(steps, 'step', 'steps')}; "
            f"{_counted([len(groups)], 'recipe', 'recipes')}, "
            f"{_counted(seeds, 'seed', 'seeds')}{' each' if len(groups) > 1 else ''}."
        )
        start, end = shared_name([str(group.recipe["name"]) for group in groups])
        text += f" Recipes: {start}*{end}." if start or end else ""
    else:
        protocols = "; ".join(comparison.title for comparison in comparisons)
        text = (
            f"What was learned and what was forgotten in {len(runs)} runs. They follow "
            f"{len(comparisons)} protocols and are compared within each: {protocols}."
        )
    dates = sorted({run.finished_at[:10] for run in runs if run.finished_at})
    machines = list(dict.fromkeys(run.machine for run in runs if run.machine))
    when = f" Finished {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}" if dates else ""
    where = f"{' on' if when else ' Trained on'} {'; '.join(machines)}" if machines else ""
    return text + when + where + ("." if when or where else "")


def _counted(numbers: list[int], one: str, many: str) -> str:
    return f"{' or '.join(str(value) for value in numbers)} {one if numbers == [1] else many}"


def duration(seconds: float) -> str:
    if pd.isna(seconds):
        return "–"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plain(value: object) -> str:
    """A recipe's value as a reader writes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(plain(entry) for entry in value) or "none"
    return str(value)


def verdicts(acting: Mapping[str, Record], num_steps: int) -> list[str]:
    """Whether GFC and GRD act in a run, from `activity`."""
    if num_steps < 2:
        return ["One step only: by definition neither loss has anything to do before the second."]
    said = []
    if "spread" in acting:
        spread = acting["spread"]["mean"]
        does = "GFC acts" if spread >= 0.01 else "GFC does next to nothing"
        said.append(
            f"{does}: from the second step on its weights have a standard deviation of "
            f"{spread:.2f} around their mean of 1."
        )
    if "alone" in acting:
        alone = acting["alone"]["mean"]
        advice = " Larger batches would let it act on more." if alone > 0.25 else ""
        said.append(
            f"{alone:.0%} of the samples are alone in their step within a batch, where GFC "
            f"leaves them at weight 1.{advice}"
        )
    if "relation" in acting:
        relation = acting["relation"]["mean"]
        does = "GRD acts" if relation > 0 else "GRD does nothing"
        said.append(
            f"{does}: the relation loss is {relation:.3g} on average from the second step on."
        )
    return said
