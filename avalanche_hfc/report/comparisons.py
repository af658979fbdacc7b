"""Which runs of a report may be compared: those of the same data and protocol."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from avalanche_hfc._types import Json, Record
from avalanche_hfc.lab.read import Group, RunData, group_runs, is_continued, shared_name
from avalanche_hfc.report.figures import LineKey, assign_colours
from avalanche_hfc.report.numbers import over_seeds
from avalanche_hfc.report.tables import KEYS

PROTOCOL = ("dataset", "base_fraction", "num_steps", "class_order")


@dataclass(frozen=True)
class Comparison:
    """Recipes trained on the same data in the same steps, the best first.

    Attributes:
        title: The protocol in words.
        groups: The recipes with their runs.
        colours: Colour of each recipe.
        name: Appended to the names of figures; empty for the first comparison of a report.
        paper: (index of the recipe, column of the paper's table) to our number beside the paper's.
    """

    title: str
    groups: Sequence[Group]
    colours: Sequence[int]
    name: str = ""
    paper: Mapping[tuple[int, str], pd.Series] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[int, Group, int]]:
        """Index, recipe and colour."""
        yield from zip(range(len(self.groups)), self.groups, self.colours, strict=True)

    @property
    def num_steps(self) -> int:
        return max(group.last_step for group in self.groups) + 1


def comparisons_of(runs: Iterable[RunData]) -> list[Comparison]:
    """Sort runs into comparisons.

    A run that learned more classes later contains the steps of the run it continues. Where that
    one has no rival it is left out: both are one line.

    Args:
        runs: All runs of a report.

    Returns:
        A comparison for each protocol, in the order met; those that learned more later behind.

    Raises:
        ValueError: If a seed of a recipe is given more than once.
    """
    protocols: dict[tuple, list[RunData]] = {}
    for run in runs:
        protocols.setdefault(_protocol(run), []).append(run)
    ranked = sorted(
        (_ranked(group_runs(own)) for own in protocols.values()),
        key=lambda groups: len(folders_learned(groups[0].recipe)),
    )
    alone = [groups[0] for groups in ranked if len(groups) == 1]
    everyone = [group for groups in ranked for group in groups]
    continued = [group for group in alone if any(continues(other, group) for other in everyone)]
    kept = [groups for groups in ranked if groups[0] not in continued]
    keys = [_line_keys(groups) for groups in kept]
    colours = assign_colours(key for own in keys for key in own)
    return [
        Comparison(
            _protocol_in_words(groups[0]),
            groups,
            [colours[key] for key in own],
            f"-{index + 1}" if index else "",
        )
        for index, (groups, own) in enumerate(zip(kept, keys, strict=True))
    ]


def folders_learned(recipe: Record) -> list[str]:
    """Names of the folders that a run learned after its own steps, in order."""
    return [Path(folder).name for folder in recipe_section(recipe, "own").get("learn", ())]


def continues(later: Group, earlier: Group) -> bool:
    """Whether the runs of one recipe are those of another that learned more folders."""
    return all(any(is_continued(run, before) for run in later.runs) for before in earlier.runs)


def recipe_section(recipe: Record, name: str) -> Record:
    """A section of a recipe, such as `data` or `method`; empty where it has none."""
    section = recipe.get(name)
    return section if isinstance(section, Mapping) else {}


def _protocol(run: RunData) -> tuple:
    data, paths = recipe_section(run.recipe, "data"), recipe_section(run.recipe, "own")
    values = [data.get(name) for name in PROTOCOL]
    source = run.data_sha256 or paths.get("data")
    return (
        *(tuple(value) if isinstance(value, list) else value for value in values),
        source,
        tuple(folders_learned(run.recipe)),
    )


def _protocol_in_words(group: Group) -> str:
    data = recipe_section(group.recipe, "data")
    steps = data.get("num_steps", group.last_step + 1)
    words = [str(data.get("dataset") or group.label)]
    if data.get("base_fraction") is not None:
        words.append(f"B = {data['base_fraction']:.0%}")
    words.append(f"{steps} step{'' if steps == 1 else 's'}")
    if data.get("class_order") not in (None, "paper", "seed"):
        words.append("classes in a given order")
    learned = folders_learned(group.recipe)
    return ", ".join(words) + (f", then {', '.join(learned)}" if learned else "")


def _ranked(groups: list[Group]) -> list[Group]:
    """Best first; those with fewer steps behind those with all."""
    end = max(group.last_step for group in groups)
    complete = [group for group in groups if group.last_step == end]
    means = {id(group): over_seeds(group)["mean"] for group in groups}
    measure = ranking_measure([means[id(group)] for group in complete])
    return sorted(
        groups, key=lambda group: (group.last_step < end, -means[id(group)].fillna(0)[measure])
    )


def ranking_measure(means: Sequence[pd.Series]) -> str:
    """`average`, or `last` where one of the recipes has no average over steps."""
    return "average" if all(mean.notna()["average"] for mean in means) else "last"


def _line_keys(groups: Sequence[Group]) -> list[LineKey]:
    keys: list[LineKey] = []
    for group in groups:
        method = recipe_section(group.recipe, "method")
        key = LineKey(str(method.get("name", group.label)), str(method.get("losses", "host")))
        twins = sum(known[:2] == key[:2] for known in keys)
        keys.append(key._replace(variant=str(twins) if twins else ""))
    return keys


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
