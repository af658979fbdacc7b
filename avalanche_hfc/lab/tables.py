"""The tables as recipes: the paper's ten and ours, for each scale that has them. The keys of a cell
are columns of experiments/paper.csv.
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import NamedTuple

from avalanche_hfc.lab.names import BACKBONES, MEM_SIZES, Spec
from avalanche_hfc.lab.options import (
    CANNOT_RUN,
    METHODS,
    OF_AVALANCHE,
    UPPER_BOUNDS,
    WITHOUT_LOSSES,
    WITHOUT_MEMORY,
)

EIGHT = ("icarl", "bic", "podnet", "ssil", "podnet-cscct", "foster", "afc", "dytox")
SEVEN = EIGHT[:-1]  # those with a CNN of their own
COMPARED = (*EIGHT, "hfc", "joint")
PRACTICAL = ("ncm", "ranpac", "frozen-replay", "wa")  # what a practitioner would try first
ABLATION = ("baseline", "baseline+tsa", "baseline+tsa+gfc", "hfc")
FH_ROWS = ("icarl", "foster", "afc", "dytox", *ABLATION)
STEPS: dict[str, dict[float | int, tuple[int, ...]]] = {  # data set: base fraction: T
    "cifar100": {0: (5, 10, 20, 25, 50), 0.5: (5, 10, 25, 50)},
    "imagenet100": {0: (5, 10, 20, 25), 0.5: (5, 10, 25, 50)},
    "imagenet1000": {0: (5, 10)},
}
MEMORY = {"cifar100": 2000, "imagenet100": 2000, "imagenet1000": 20000}
FURTHER_PROTOCOLS = ("hfc", "herding-replay", "icarl", "podnet", "foster", "dytox", "ncm")
WITH_MEMORY = ("hfc", "herding-replay", "icarl", "podnet")
IN_SHORT = ("hfc", "herding-replay", "podnet", "ncm")
EXEMPLARS = (5, 10, 20, 50)  # of each class
OF_AVALANCHE_COMPARED = (
    "avalanche-replay",
    "avalanche-lwf-fixed",
    "avalanche-er_ace-fixed",
    "avalanche-der-fixed",
    "avalanche-icarl-fixed",
    "avalanche-bic-fixed",
)


class PaperCell(NamedTuple):
    """A cell of a table; the fields are columns of experiments/paper.csv.

    Attributes:
        row: Method of the row.
        losses: ``"host"``, or ``"hfc"`` for a method with the losses of HFC.
        backbone: Name of the backbone.
        dataset: Name of the data set.
        base_fraction: 0, or 0.5 for a base step with half of the classes.
        num_steps: Number of steps, the base step not counted.
        mem_size: Number of exemplars of all classes together, or None.
        per_class: Number of exemplars of each class, or None.
    """

    row: str
    losses: str
    backbone: str
    dataset: str
    base_fraction: float | int
    num_steps: int
    mem_size: int | None
    per_class: int | None

    @property
    def row_name(self) -> str:
        """The line of the table as `--only` names it: icarl, or icarl+hfc with both losses."""
        return self.row + ("+hfc" if self.losses == "hfc" else "")


class TableCell(NamedTuple):
    """A cell of a table and the recipe that fills it.

    At scale demo the recipe has other data, and its number is not compared with the
    paper's.

    Attributes:
        cell: The cell.
        recipe: Name of the recipe.
    """

    cell: PaperCell
    recipe: str


def compared(
    dataset: str,
    rows: tuple[str, ...] = COMPARED,
    *,
    steps: tuple[int, ...] | None = None,
    base: tuple = (0, 0.5),
) -> Iterator:
    """Rows with ViT-Base over the protocols of a data set, with a total memory."""
    for row in rows:
        for fraction in (fraction for fraction in STEPS[dataset] if fraction in base):
            for num_steps in STEPS[dataset][fraction] if steps is None else steps:
                yield PaperCell(
                    row, "host", "vit-base", dataset, fraction, num_steps, MEMORY[dataset], None
                )


def plugged(dataset: str, cnn: str, hosts: tuple[str, ...], protocols: list[tuple]) -> Iterator:
    """Hosts as they are and with both losses, on a CNN; DyTox on its own encoder; the joint
    training of each backbone.
    """
    rows = [(host, losses, cnn) for host in hosts for losses in ("host", "hfc")]
    rows += [("dytox", losses, "vit-tiny") for losses in ("host", "hfc")]
    rows += [("joint", "host", backbone) for backbone in (cnn, "vit-tiny")]
    for row in rows:
        for protocol in protocols:
            yield PaperCell(*row, dataset, *protocol)


def plug_and_play(dataset: str, cnn: str, steps: tuple[int, ...]) -> Iterator:
    return plugged(dataset, cnn, SEVEN, [(0, num_steps, 2000, None) for num_steps in steps])


def twenty_per_class() -> Iterator:
    protocols = [(0.5, num_steps, None, 20) for num_steps in (5, 10)]
    for row in COMPARED:
        for protocol in protocols:
            yield PaperCell(row, "host", "vit-base", "cifar100", *protocol)
    yield from plugged(
        "cifar100", "resnet-32", ("icarl", "podnet-cscct", "foster", "afc"), protocols
    )


PAPER: dict[str, list[PaperCell]] = {
    "cifar100": [*compared("cifar100")],
    "imagenet100": [*compared("imagenet100")],
    "imagenet1000": [*compared("imagenet1000")],
    "plug-and-play": [
        *plug_and_play("cifar100", "resnet-32", STEPS["cifar100"][0]),
        *plug_and_play("imagenet100", "resnet-18", STEPS["imagenet100"][0]),
    ],
    "ablation": [
        cell
        for data in ("cifar100", "imagenet100")
        for cell in compared(data, ABLATION, steps=(5, 10, 25), base=(0,))
    ],
    "per-class-20": [*twenty_per_class()],
    "fh": [*compared("cifar100", FH_ROWS, steps=(5,), base=(0,))],
    "steps-imagenet100": [*compared("imagenet100", steps=(10,), base=(0,))],
    "steps-imagenet1000": [*compared("imagenet1000", steps=(10,), base=(0,))],
    "steps-plug-and-play": [*plug_and_play("cifar100", "resnet-32", (10,))],
}
FURTHER_ROWS = {
    "avalanche": (
        "finetune",
        "herding-replay",
        *(name for name in OF_AVALANCHE if name not in CANNOT_RUN),
    ),
    "hfc-forms": ("hfc", "hfc-paper", "hfc-official"),
    "practical": PRACTICAL,
}
DEMO_METHODS = {
    "hfc": "HFC",
    "herding-replay": "herding replay, cross-entropy",
    "avalanche-replay": "Avalanche Replay",
    "avalanche-naive": "Avalanche Naive",
}
"""The methods of `hfc demo`, and how its report calls them."""
# every method that can run and is not in the table `practical`, as it is and with both losses; ten
# classes in five steps
METHODS_ON_DIGITS = [
    PaperCell(row, losses, "vit-base", "cifar100", 0, 5, 2000, None)
    for row in METHODS
    if row not in (*CANNOT_RUN, *PRACTICAL)
    for losses in (("host",) if row in WITHOUT_LOSSES else ("host", "hfc"))
]
FURTHER = {  # on the protocols of the comparison tables; no number of the paper stands beside them
    table: [cell for dataset in STEPS for cell in compared(dataset, rows)]
    for table, rows in FURTHER_ROWS.items()
}
FURTHER["practical"] += [
    cell._replace(losses="hfc") for cell in FURTHER["practical"] if cell.row not in WITHOUT_LOSSES
]


def spec_of(cell: PaperCell, scale: str, variant: str = "") -> Spec:
    """The recipe that fills a cell at a scale. Joint training is one training on all classes, which
    the paper prints under every T.
    """
    dataset, base_fraction, num_steps = cell.dataset, cell.base_fraction, cell.num_steps
    per_class = None if cell.row in WITHOUT_MEMORY else cell.per_class
    backbone = "vit-base" if cell.backbone.startswith("vit-small") else cell.backbone
    if scale == "demo":
        dataset, num_steps, per_class = "digits", 5, per_class and 2
        backbone = "resnet-32" if backbone == "resnet-18" else backbone  # a third of the time
    if cell.row in UPPER_BOUNDS:
        base_fraction, num_steps = 0, 1
    return Spec(
        dataset,
        base_fraction,
        num_steps,
        per_class,
        cell.row,
        cell.losses,
        backbone,
        scale,
        variant,
    )


def cells_at(cells: Iterable[PaperCell], scale: str, variant: str = "") -> list[TableCell]:
    """The cells with the recipes that fill them, which are noted in `SPECS`. With ten classes there
    is one column for each base fraction, the first.
    """
    if scale == "demo":
        columns: dict[PaperCell, PaperCell] = {}
        for cell in cells:
            columns.setdefault(cell._replace(num_steps=0), cell)
        cells = columns.values()
    entries = []
    for cell in cells:
        spec = spec_of(cell, scale, variant)
        SPECS[spec.name] = spec
        entries.append(TableCell(cell, spec.name))
    return entries


def small_cells(
    rows: Iterable[str],
    protocols: Iterable[tuple[float | int, int]] = ((0, 5),),
    *,
    losses: str = "host",
    per_class: int | None = None,
    variant: str = "",
    scale: str = "small",
) -> list[TableCell]:
    """Cells of the scales small and medium: rows under some protocols, each (base fraction, number
    of steps).
    """
    backbone = "vit-small, random weights" if variant == "random" else "vit-small"
    mem_size = MEM_SIZES[scale] if per_class is None else None
    cells = [
        PaperCell(row, losses, backbone, "cifar100", *protocol, mem_size, per_class)
        for row in rows
        for protocol in protocols
    ]
    return cells_at(cells, scale, variant)


SPECS: dict[str, Spec] = {}  # every recipe by its name
TABLES = {
    table: {scale: cells_at(cells, scale) for scale in ("paper", "demo")}
    for table, cells in PAPER.items()
}
"""The tables of the paper: name, then scale, then cells."""
FURTHER_TABLES = {
    table: {scale: cells_at(cells, scale) for scale in ("paper", "demo")}
    for table, cells in FURTHER.items()
}
"""Tables that the paper does not have: name, then scale, then cells."""
FURTHER_TABLES |= {
    "methods": {"demo": cells_at(METHODS_ON_DIGITS, "demo")},
    "demo": {
        "demo": cells_at(
            [
                cell
                for cell in METHODS_ON_DIGITS
                if cell.row in DEMO_METHODS and cell.losses == "host"
            ],
            "demo",
        )
    },
}
ALL_PROTOCOLS = ((0, 5), (0, 10), (0.5, 5), (0.5, 10))
HOSTS = tuple(row for row in METHODS if row not in WITHOUT_LOSSES)
AT_SMALL = {
    "comparison": small_cells(
        (
            "hfc",
            "hfc-paper",
            "hfc-official",
            *EIGHT,
            "finetune",
            "herding-replay",
            "joint",
            *OF_AVALANCHE_COMPARED,
            *PRACTICAL,
        )
    ),
    "protocols": small_cells(FURTHER_PROTOCOLS, ((0, 10), (0.5, 5))),
    "ablation": [  # all parts with the values tuned for the baseline, then with HFC's own
        *small_cells(
            ("baseline", "baseline+tsa", "baseline+gfc", "baseline+grd", "baseline+tsa+gfc")
        ),
        *small_cells(("baseline", "baseline+tsa"), losses="hfc"),
        *small_cells(("hfc",)),
    ],
    "plug-and-play": small_cells(HOSTS) + small_cells(HOSTS, losses="hfc"),
    "memory": [
        entry for per_class in EXEMPLARS for entry in small_cells(WITH_MEMORY, per_class=per_class)
    ],
    "initialisation": small_cells((*WITH_MEMORY, "ncm"))
    + small_cells((*WITH_MEMORY, "ncm"), variant="random"),
    "order": small_cells(IN_SHORT, variant="orders"),
    "cifar100": small_cells(COMPARED, ALL_PROTOCOLS),
    "fh": small_cells(FH_ROWS),
    **{table: small_cells(rows, ALL_PROTOCOLS) for table, rows in FURTHER_ROWS.items()},
}
for _table, _cells in AT_SMALL.items():
    (TABLES if _table in TABLES else FURTHER_TABLES).setdefault(_table, {})["small"] = _cells
FURTHER_TABLES["comparison"]["medium"] = small_cells(IN_SHORT, ((0, 10),), scale="medium")
ALL_TABLES = {**TABLES, **FURTHER_TABLES}


# For reading


def tables_of(name: str) -> list[str]:
    """The tables that a recipe has a cell in."""
    return [
        table
        for table, scales in ALL_TABLES.items()
        for entries in scales.values()
        if any(entry.recipe == name for entry in entries)
    ]


def matching(pattern: str) -> dict[tuple[str, str], list[str]]:
    """(table, scale) -> names that match a shell pattern or contain a text. Each name stands under
    its first table.
    """
    shell_pattern = pattern if any(sign in pattern for sign in "*?[") else f"*{pattern}*"
    by_table: dict[tuple[str, str], list[str]] = {}
    listed: set[str] = set()
    for table, scales in ALL_TABLES.items():
        for scale, entries in scales.items():
            names = dict.fromkeys(entry.recipe for entry in entries)
            new = [name for name in names if fnmatchcase(name, shell_pattern)]
            by_table[table, scale] = [name for name in new if name not in listed]
            listed.update(new)
    if not listed:
        near = get_close_matches(pattern, SPECS, n=4, cutoff=0.4)
        hint = f" Near ones: {', '.join(near)}." if near else ""
        raise ValueError(
            f"No recipe matches {pattern!r}.{hint} `hfc list` shows all, and how recipes for "
            "your data and methods are named."
        )
    return {heading: names for heading, names in by_table.items() if names}


def digest() -> dict[tuple[str, str], list[str]]:
    """(table, scale) -> all its names, written with a shell's braces."""
    return {
        (table, scale): braced(entries)
        for table, scales in ALL_TABLES.items()
        for scale, entries in scales.items()
    }


def braced(entries: list[TableCell]) -> list[str]:
    """The names of some cells as few lines, each of which a shell expands to names that exist."""
    steps: dict[tuple, dict[str, list[int]]] = {}
    for spec in dict.fromkeys(SPECS[entry.recipe] for entry in entries):
        row = spec.row + ("+hfc" if spec.losses == "hfc" else "")
        alike = steps.setdefault(tuple(spec._replace(num_steps=0, row="", losses="host")), {})
        alike.setdefault(row, []).append(spec.num_steps)
    lines = []
    for key, rows in steps.items():
        spec = Spec(*key)
        same: dict[tuple[int, ...], list[str]] = {}
        for row, numbers_of_steps in rows.items():
            same.setdefault(tuple(numbers_of_steps), []).append(row)
        for numbers, names in same.items():
            protocol = spec.protocol(braces([str(number) for number in numbers]))
            lines.append(f"{protocol}-{braces(names)}{BACKBONES[spec.backbone]}@{spec.scale}")
    return lines


def braces(alternatives: list[str]) -> str:
    return alternatives[0] if len(alternatives) == 1 else "{" + ",".join(alternatives) + "}"
