"""Seeds as a user writes them."""

import re

import click


def seeds_of(text: str) -> tuple[int, ...]:
    """The seeds of a text such as 0-4 or 0,2,5.

    Args:
        text: Numbers and ranges with commas between.

    Returns:
        The seeds, in the order given.

    Raises:
        click.BadParameter: The text has another form.

    Example:
        >>> seeds_of("0-2,7")
        (0, 1, 2, 7)
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        if match is None:
            raise click.BadParameter(f"{text!r} is not of the form 0-4 or 0,2,5.")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return tuple(seeds)
