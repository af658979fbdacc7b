"""`hfc demo`."""

from pathlib import Path

import click

from avalanche_hfc.recipes import DEMO_METHODS, DemoRecipe
from avalanche_hfc.runs.folder import DemoFolder
from avalanche_hfc.runs.quiet import quiet_host


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Seeds 0, 1, …; each has its own class order.")
@click.option("--epochs", type=click.IntRange(min=1), default=DemoRecipe.epochs, show_default=True, help="Epochs per step.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo"), show_default=True, help="Result folder.")
@click.option("--fresh", is_flag=True, help="Drop the results that are in the folder and start over.")
def demo(seeds: int, epochs: int, out: Path, fresh: bool) -> None:
    """Split digits in five steps: HFC, herding replay, Avalanche's Replay and Naive.

    Nothing is downloaded. Runs that are in the folder already are not run again.
    """
    folder = DemoFolder(out, DemoRecipe(epochs=epochs), fresh=fresh)
    runs = folder.open_runs(DEMO_METHODS, range(seeds))
    quiet_host()
    if runs:
        click.echo("Loading torch and Avalanche …", err=True)
        from avalanche_hfc.cli.progress import run_all

        run_all(folder, runs)
    from avalanche_hfc.report.demo import DEFINITIONS, table, write_report

    summary = write_report(out)
    click.echo(table(summary))
    click.echo(f"\n{DEFINITIONS}\n\nRows: {out / 'steps.csv'}, {out / 'summary.csv'}; curves: {out / 'curves.png'}")
