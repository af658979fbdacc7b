"""The section on what was trained: values of the recipes, versions, machines, dates."""

from collections.abc import Sequence

from avalanche_hfc.report.blocks import Cell, Fold, Table, Text
from avalanche_hfc.report.comparisons import Comparison
from avalanche_hfc.report.sentences import plain
from avalanche_hfc.store.run_folder import settings


def recipe_values(comparison: Comparison) -> list:
    """The values that differ, a column per recipe; those that all share, once."""
    groups = comparison.groups
    values = [settings(group.recipe) for group in groups]
    names = list(dict.fromkeys(name for own in values for name in own if name != "name"))
    shown = {name: [plain(own[name]) if name in own else "–" for own in values] for name in names}
    sources: dict[str, str] = {}
    for group in groups:
        sources = {**dict(group.recipe.get("sources") or {}), **sources}
    differing = [name for name in names if len(set(shown[name])) > 1]
    shared = [name for name in names if name not in differing]
    blocks: list = []
    if differing:
        cells = {name: shown[name] for name in differing}
        blocks = [
            Text("Where the recipes differ:"),
            _values([group.label for group in groups], cells, sources, comparison.colours),
        ]
    title = "Every value of the recipe" if len(groups) == 1 else "Values that all recipes share"
    once = {name: shown[name][:1] for name in shared}
    return [*blocks, Fold(title, [_values(["value"], once, sources, [None])], open=not differing)]


def _values(
    headings: Sequence[str],
    cells: dict[str, list[str]],
    sources: dict[str, str],
    colours: Sequence[int | None],
) -> Table:
    with_sources = any(name in sources for name in cells)
    rows = [
        [Cell(name), *map(Cell, own), *([Cell(str(sources.get(name, "")))] * with_sources)]
        for name, own in cells.items()
    ]
    head = [("setting", ""), *((text, "") for text in headings)]
    head += [("source", "")] * with_sources
    return Table(
        head, rows, text_columns=range(len(head)), colours=(None, *colours, *[None] * with_sources)
    )


def origins(comparisons: Sequence[Comparison]) -> Fold:
    """Versions, machines, dates and folders of all runs."""
    groups = [group for comparison in comparisons for group in comparison.groups]
    runs = [run for group in groups for run in (*group.runs, *group.unfinished)]
    packages = list(dict.fromkeys(name for run in runs for name in run.versions))
    rows = [
        [
            Cell(name),
            Cell(", ".join(dict.fromkeys(str(run.versions.get(name, "–")) for run in runs))),
        ]
        for name in packages
    ]
    machines = dict.fromkeys(run.machine for run in runs if run.machine)
    rows.append([Cell("machine"), Cell("; ".join(machines) or "–")])
    for run in runs:
        finished = f"finished {run.finished_at}" if run.finished_at else "not finished"
        rows.append(
            [Cell(str(run.path)), Cell(f"{run.recipe['name']}, seed {run.seed}, {finished}")]
        )
    table = Table([("of", ""), ("value", "")], rows, text_columns=(0, 1))
    return Fold("Versions, machine, dates, folders", [table])
