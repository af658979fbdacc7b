"""`hfc demo`."""

from pathlib import Path

import click

from avalanche_hfc.recipes import DEMO_EPOCHS


@click.command()
@click.option(
    "--seeds",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Seeds 0, 1, …; each has its own class order.",
)
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    default=DEMO_EPOCHS,
    show_default=True,
    help="Epochs per step.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    show_default=True,
    help="Result folder.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Start over. The runs that are there are moved aside, not deleted.",
)
def demo(seeds: int, epochs: int, out: Path, fresh: bool) -> None:
    """Split digits in five steps: HFC, herding replay, Avalanche's Replay and Naive; a table,
    curves and a report.

    Nothing is downloaded. Runs that are in the folder already are not run again.
    """
    from avalanche_hfc.cli.table_runs import end, none_finished, run_cells
    from avalanche_hfc.tasks.table import cells_of, runs_of, set_aside

    runs = out / "runs"
    options = {
        "scale": "demo",
        "seeds": seeds,
        "out": runs,
        "jobs": 1,
        "on": "local",
        "commands": False,
        "device": "cpu",
        "data": None,
        "workers": None,
        "no_run": False,
    }
    cells = cells_of("demo", "demo")
    if fresh and (old := set_aside(runs_of(cells, seeds, runs), runs)) is not None:
        click.echo(f"The runs that were there are in {old} now.", err=True)
    done = run_cells(cells, [] if epochs == DEMO_EPOCHS else ["--epochs", str(epochs)], options)
    end(done)
    if not done.finished:
        raise none_finished("demo", options)
    from avalanche_hfc.report.demo import DEFINITIONS, table, write_report

    click.echo(table(write_report(out)))
    click.echo(
        f"\n{DEFINITIONS}\n\nRows: {out / 'steps.csv'}, {out / 'summary.csv'}; curves: "
        f"{out / 'curves.png'}"
    )
    click.echo(f"Report, to open in a browser: {out / 'report.html'}")
