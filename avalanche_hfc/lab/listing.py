"""Recipes by table and scale, for reading."""

from difflib import get_close_matches
from fnmatch import fnmatchcase

from avalanche_hfc.lab.names import BACKBONES, Spec
from avalanche_hfc.lab.tables import FURTHER_TABLES, SPECS, TABLES, TableCell

ALL_TABLES = {**TABLES, **FURTHER_TABLES}


def tables_of(name: str) -> list[str]:
    """The tables that a recipe has a cell in."""
    return [
        table
        for table, scales in ALL_TABLES.items()
        for entries in scales.values()
        if any(entry.recipe == name for entry in entries)
    ]


def matching(pattern: str) -> dict[tuple[str, str], list[str]]:
    """(table, scale) -> names that match: as a shell's pattern, or that have the text in them. Each
    name stands under its first table.
    """
    globbing = any(sign in pattern for sign in "*?[")
    first_table: dict[str, tuple[str, str]] = {}
    for table, scales in ALL_TABLES.items():
        for scale, entries in scales.items():
            for name in (entry.recipe for entry in entries):
                if fnmatchcase(name, pattern) if globbing else pattern in name:
                    first_table.setdefault(name, (table, scale))
    if not first_table:
        near = get_close_matches(pattern, SPECS, n=4, cutoff=0.4)
        hint = f" Near ones: {', '.join(near)}." if near else ""
        raise ValueError(
            f"No recipe matches {pattern!r}.{hint} `hfc list` shows all, and how recipes for "
            "your data and methods are named."
        )
    by_table: dict[tuple[str, str], list[str]] = {}
    for name, heading in first_table.items():
        by_table.setdefault(heading, []).append(name)
    return by_table


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
