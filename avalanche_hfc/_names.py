"""Names in messages: looking one up in a registry with an error that helps, and lists cut short."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

Entry = TypeVar("Entry")


def lookup(table: Mapping[str, Entry], name: object, kind: str) -> Entry:
    """`table[name]`; an unknown name is answered with all names and the nearest."""
    if isinstance(name, str) and name in table:
        return table[name]
    near = get_close_matches(str(name), table, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"Unknown {kind} {name!r}. Known: {', '.join(table)}.{hint}")


def shortened(values: Sequence, limit: int = 10) -> str:
    """The first values of a list, as text, and how many there are in all.

    Example:
        >>> shortened([1, 2, 3, 4], limit=2)
        '1, 2 … (4 in all)'
    """
    shown = ", ".join(str(value) for value in values[:limit])
    return shown if len(values) <= limit else f"{shown} … ({len(values)} in all)"
