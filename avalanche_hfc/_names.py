"""Looking up a name in a registry, with an error that helps."""

from collections.abc import Mapping
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
