"""Which runs of a report may be compared: those of the same data and protocol."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from avalanche_hfc._types import Record
from avalanche_hfc.report.figures import LineKey, assign_colours
from avalanche_hfc.report.numbers import over_seeds
from avalanche_hfc.store.read import Group, RunData, group_runs, is_continued

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
