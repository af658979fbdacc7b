"""Values given on the command line in the place of a recipe's: --epochs 3,
--method.relation-weight=0.5.
"""

from collections.abc import Iterable

import click

TAKES_OVERRIDES = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
}  # context settings of a command that takes them


def overrides_of(arguments: Iterable[str]) -> dict[str, str]:
    """name -> text, of arguments that are no option of the command. `override` reads and checks
    them.
    """
    found: dict[str, str] = {}
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("--") or word == "--":
            raise click.UsageError(
                f"Unexpected argument {word!r}. A value of the recipe is given as --epochs 3."
            )
        name, sign, text = word[2:].partition("=")
        if not sign:
            text = next(rest, "")
            if not text or text.startswith("--"):
                raise click.UsageError(f"{word} needs a value, as in {word} 3.")
        if name in found:
            raise click.UsageError(f"--{name} is given twice.")
        found[name] = text
    return found
