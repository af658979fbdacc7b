"""Names: looking one up in a registry with an error that helps, lists of them and nouns behind a
number in messages, and public names that load when first used.
"""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeVar

Entry = TypeVar("Entry")


class UnknownName(KeyError, ValueError):
    """A name that a registry does not have. A `KeyError`, as of any mapping, and a `ValueError`, as
    of any wrong argument.
    """

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would show it in quotes


def lookup(table: Mapping[str, Entry], name: object, kind: str) -> Entry:
    """`table[name]`; an unknown name is answered with all names and the nearest."""
    if isinstance(name, str) and name in table:
        return table[name]
    near = get_close_matches(str(name), table, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UnknownName(f"Unknown {kind} {name!r}. Known: {', '.join(table)}.{hint}")


def shortened(values: Sequence, limit: int = 10) -> str:
    """The first values of a list, as text, and how many there are in all.

    Example:
        >>> shortened([1, 2, 3, 4], limit=2)
        '1, 2 … (4 in all)'
    """
    shown = ", ".join(str(value) for value in values[:limit])
    return shown if len(values) <= limit else f"{shown} … ({len(values)} in all)"


def printable(name: str) -> str:
    """A name with control characters and undecodable bytes written as escapes."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in name)


def joined(words: Sequence[str]) -> str:
    """A list as it is written in a sentence.

    Example:
        >>> joined(["a", "b", "c"]), joined(["a"])
        ('a, b and c', 'a')
    """
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def counted(number: int, what: str) -> str:
    """A number with its noun, in the plural unless it is 1.

    Example:
        >>> counted(1, "bad file"), counted(0, "seed")
        ('1 bad file', '0 seeds')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def imported_when_used(package: str, files: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that imports a public name from its file when it is first
    used.

    Args:
        package: The package's `__name__`.
        files: The names in each file, with spaces between.
    """
    home = {name: file for file, names in files.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home[name]}"), name)

    return load
