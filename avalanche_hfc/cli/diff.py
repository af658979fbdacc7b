"""`hfc diff`."""

import sys
from pathlib import Path

import click

SHOWN = 4
DIGITS = 4  # of a number, or as many as it takes to see a difference
WORDS = {
    "lr": "learning rate",
    "fh": "forgetting heterogeneity",
    "digest": "digest of the weights",
    "accuracy_nme": "accuracy by nearest mean",
    "correct_nme": "correct by nearest mean",
    "brought_in": "step of the class",
}


@click.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
def diff(first: Path, second: Path) -> None:
    """Where two runs differ.

    Names the settings that differ, and the first epoch, step and class whose numbers do; train.csv
    holds a digest of the weights after every epoch. Times and memory do not count. Exit code 1 if
    the runs differ.
    """
    from avalanche_hfc.store.diff import diff_runs

    result = diff_runs(first, second)
    for name, one, other in result.changed:
        click.echo(f"setting  {name}: {' and '.join(rounded(one, other))}")
    for difference in result.differences:
        click.echo(f"{difference.file}.csv differs from {difference.where} on")
        for column, before, after in difference.columns[:SHOWN]:
            values = (
                ""
                if before is None or after is None
                else ": " + " and ".join(rounded(before, after))
            )
            click.echo(f"         {in_words(column)}{values}")
        if len(difference.columns) > SHOWN:
            click.echo(f"         and {len(difference.columns) - SHOWN} more columns")
    click.echo(
        f"The runs {'agree in all' if result.same else 'differ after'} {result.num_alike} rows."
    )
    sys.exit(0 if result.same else 1)


def in_words(column: str) -> str:
    """A column of the rows, in full words."""
    return WORDS.get(column, column.replace("_", " "))


def rounded(one: str, other: str) -> tuple[str, str]:
    """Two values as texts; two numbers with as few digits as tell them apart, 4 at least."""
    if not one or not other:
        return shortened(one) or "nothing", shortened(other) or "nothing"
    try:
        numbers = float(one), float(other)
    except ValueError:
        return one, other
    for digits in range(DIGITS, 18):
        texts = f"{numbers[0]:.{digits}g}", f"{numbers[1]:.{digits}g}"
        if texts[0] != texts[1]:
            return texts
    return one, other


def shortened(value: str) -> str:
    """A number with a decimal point in 4 digits; any other text as it is."""
    try:
        return f"{float(value):.{DIGITS}g}" if "." in value else value
    except ValueError:
        return value
