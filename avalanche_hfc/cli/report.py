"""`hfc report`."""

from pathlib import Path

import click

from avalanche_hfc.cli.allow_code import allow_code
from avalanche_hfc.cli.loading import announce_loading


@click.command()
@click.argument(
    "folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER…"
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("report"),
    show_default=True,
    help="Where to write it.",
)
@click.option(
    "--paper",
    type=click.Path(path_type=Path),
    help="CSV file of the paper's numbers to set beside: experiments/paper.csv.",
)
@click.option(
    "--pictures",
    is_flag=True,
    help="Show exemplars as pictures; the data of the runs must be there.",
)
@click.option(
    "--data",
    "data_root",
    type=click.Path(path_type=Path),
    help="Where the data is, for --pictures.",
)
@allow_code
def report(
    folders: tuple[Path, ...],
    out: Path,
    paper: Path | None,
    pictures: bool,
    data_root: Path | None,
    allow_code: bool,
) -> None:
    """One page on what runs have learned and forgotten, from their CSV files.

    A FOLDER is a run folder, or holds run folders. Several seeds of a recipe are taken together,
    several recipes stand side by side. The page needs no network and no other file. It can be
    deleted and made again.
    """
    from avalanche_hfc.report import pictures_of_recipe, write_report

    with_pictures = pictures or data_root is not None
    if with_pictures:
        announce_loading()
    exemplars = pictures_of_recipe(data_root, allow_code=allow_code) if with_pictures else None
    click.echo(f"Page: {write_report(folders, out, paper=paper, pictures=exemplars)}")
