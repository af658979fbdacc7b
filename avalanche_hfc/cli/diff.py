"""`hfc diff`."""

import sys
from pathlib import Path

import click

SHOWN = 4


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
        click.echo(f"setting  {name}: {one}, {other}")
    for difference in result.differences:
        click.echo(f"{difference.file:<9}{difference.where}")
        for column, before, after in difference.columns[:SHOWN]:
            click.echo(
                f"         {column}"
                + ("" if before is None and after is None else f": {before}, {after}")
            )
        if len(difference.columns) > SHOWN:
            click.echo(f"         … and {len(difference.columns) - SHOWN} more columns")
    click.echo(
        f"The runs {'agree in all' if result.same else 'differ after'} {result.num_alike} rows."
    )
    sys.exit(0 if result.same else 1)
