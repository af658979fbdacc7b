"""`hfc data get`."""

from pathlib import Path

import click

from avalanche_hfc.cli.loading import announce_loading


@click.command()
@click.argument("name", type=click.Choice(["cifar100"]))
@click.option(
    "--data",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to put it  [default: Avalanche's folder for data, where recipes look for it]",
)
def get(name: str, folder: Path | None) -> None:
    """Download a data set and check its md5 sums. One that is there already is only checked."""
    announce_loading()
    from avalanche_hfc.benchmarks.download import download_cifar100

    click.echo(f"{name}: {download_cifar100(folder)}")
