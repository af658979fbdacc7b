"""`hfc selftest`."""

import sys

import click

from avalanche_hfc.cli.loading import announce_loading


@click.command()
def selftest() -> None:
    """Check this installation in seconds.

    Formulas against loops, golden values, checksums of the class orders, and a training that is
    stopped and resumed. Exit code 1 if a check fails.
    """
    announce_loading()
    import torch

    from avalanche_hfc.tasks.selftest import Failed, checks

    torch.set_num_threads(1)
    failed = 0
    for name, check in checks():
        try:
            check()
            click.echo(f"ok      {name}")
        except Failed as error:
            failed += 1
            click.echo(f"FAILED  {name}: {error}")
    if failed:
        click.echo(
            f"{failed} checks failed: results of this installation are not to be trusted.", err=True
        )
    sys.exit(1 if failed else 0)
