"""`hfc report`."""

from pathlib import Path

import click


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FOLDER…")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("report"), show_default=True, help="Where to write it."
)
@click.option("--paper", type=click.Path(path_type=Path), help="CSV file of the paper's numbers to set beside: experiments/paper.csv.")
def report(folders: tuple[Path, ...], out: Path, paper: Path | None) -> None:
    """One page on what runs have learned and forgotten, from their CSV files.

    A FOLDER is a run folder, or holds run folders. Several seeds of a recipe are taken together, several recipes stand side by side.
    The page needs no network and no other file; the same is written as markdown with pictures. Both can be deleted and made again.
    """
    from avalanche_hfc.report.page import write_report

    page, text, *_ = write_report(folders, out, paper=paper)
    click.echo(f"Page: {page}\nMarkdown: {text}")
