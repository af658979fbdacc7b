"""`hfc data check`."""

import json
import sys
from pathlib import Path

import click

from avalanche_hfc._names import counted

SHOWN = 5


@click.group()
def data() -> None:
    """Your images."""


@data.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="FOLDER_OR_NPZ")
@click.option(
    "--all", "show_all", is_flag=True, help=f"Name every place of a fault, not the first {SHOWN}."
)
@click.option("--skip-bad", is_flag=True, help="Leave out bad files, as `hfc run --skip-bad` does.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--download",
    is_flag=True,
    help="Download CIFAR-100 into this folder unless it is there, and check its md5 sums.",
)
def check(path: Path, show_all: bool, skip_bad: bool, as_json: bool, download: bool) -> None:
    """Check a folder of images or an npz file before training, as `hfc run` will.

    Names files that are no images or cannot be read, classes without enough images, images that
    are tiny, huge, grey among coloured ones, or copies of others. Exit code 1 if the data cannot be
    trained on as it is.
    """
    if download:
        from avalanche_hfc.benchmarks.download import download_cifar100

        click.echo(f"CIFAR-100, its md5 sums are right: {download_cifar100(path)}")
        return
    from tqdm import tqdm

    from avalanche_hfc.benchmarks.check import check_data

    with tqdm(unit="image", disable=None, dynamic_ncols=True, leave=False) as bar:
        result = check_data(path, skip_bad=skip_bad, tick=bar.update)
    if as_json:
        click.echo(json.dumps(result.as_dict(), indent=2))
        sys.exit(1 if result.stops else 0)
    click.echo(f"{path}: {result.num_images} images in {len(result.class_names)} classes")
    if result.junk:
        click.echo(f"skipped {counted(len(result.junk), 'file')} left behind by programs or hidden")
    for finding in result.findings:
        word = "stops " if finding.stops else "left out" if finding.bad else "note  "
        places = [shown_path for shown_path in finding.where if shown_path]
        click.echo(f"{word} {finding.what}" + (f": {len(places)}" if places else ""))
        shown = places if show_all else places[:SHOWN]
        for shown_path in shown:
            click.echo(f"         {shown_path}")
        if len(shown) < len(places):
            click.echo(f"         … and {len(places) - len(shown)} more (--all)")
    if not result.findings:
        click.echo("Nothing found.")
    sys.exit(1 if result.stops else 0)
