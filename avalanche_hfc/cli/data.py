"""`hfc data check`."""

import sys
from pathlib import Path

import click

SHOWN = 5


@click.group()
def data() -> None:
    """Folders of images."""


@data.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--all", "show_all", is_flag=True, help=f"Name every place of a fault, not the first {SHOWN}."
)
def check(folder: Path, show_all: bool) -> None:
    """Look at every image of FOLDER before training.

    Names images that cannot be read, are empty, tiny or grey, classes without an image or in one
    part only, and test images that are training images as well. Exit code 1 if the folder cannot be
    trained on as it is.
    """
    from tqdm import tqdm

    from avalanche_hfc.benchmarks.check import check_folder

    with tqdm(unit="image", disable=None, dynamic_ncols=True) as bar:
        result = check_folder(folder, tick=bar.update)
    click.echo(f"{folder}: {result.num_images} images in {result.num_classes} classes")
    for finding in result.findings:
        shown = finding.where if show_all else finding.where[:SHOWN]
        click.echo(
            f"{'stops ' if finding.stops else 'note  '} {finding.what}: {len(finding.where)}"
        )
        for place in shown:
            click.echo(f"         {place}")
        if len(shown) < len(finding.where):
            click.echo(f"         … and {len(finding.where) - len(shown)} more (--all)")
    if not result.findings:
        click.echo("Nothing found.")
    sys.exit(1 if result.stops else 0)
