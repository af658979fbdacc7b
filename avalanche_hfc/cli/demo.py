"""`hfc demo`."""

import shutil
import sys
from pathlib import Path

import click

from avalanche_hfc.recipes import DEMO_METHODS, DemoRecipe, Recipe, override, recipe
from avalanche_hfc.runs.quiet import quiet_host
from avalanche_hfc.runs.run_folder import RunFolder


@click.command()
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Seeds 0, 1, …; each has its own class order.")
@click.option("--epochs", type=click.IntRange(min=1), default=DemoRecipe.epochs, show_default=True, help="Epochs per step.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("demo"), show_default=True, help="Result folder.")
@click.option("--fresh", is_flag=True, help="Drop the runs that are in the folder and start over.")
def demo(seeds: int, epochs: int, out: Path, fresh: bool) -> None:
    """Split digits in five steps: HFC, herding replay, Avalanche's Replay and Naive; a table, curves and a report.

    Nothing is downloaded. Runs that are in the folder already are not run again.
    """
    runs = out / "runs"
    if fresh:
        shutil.rmtree(runs, ignore_errors=True)
    wanted = [(demo_recipe(method, epochs), seed) for seed in range(seeds) for method in DEMO_METHODS]
    places = [RunFolder(runs / own.name / str(seed)) for own, seed in wanted]
    for (own, seed), place in zip(wanted, places, strict=True):
        place.check(own.as_dict(), seed)
    out.mkdir(parents=True, exist_ok=True)
    quiet_host()
    missing = [(own, seed, place) for (own, seed), place in zip(wanted, places, strict=True) if not place.finished]
    if missing:
        click.echo("Loading torch and Avalanche …", err=True)
        run_all(missing)
    from avalanche_hfc.report.demo import DEFINITIONS, table, write_report

    click.echo(table(write_report(out)))
    click.echo(f"\n{DEFINITIONS}\n\nRows: {out / 'steps.csv'}, {out / 'summary.csv'}; curves: {out / 'curves.png'}")
    click.echo(f"Report, to open in a browser: {out / 'report.html'}")


def demo_recipe(method: str, epochs: int) -> Recipe:
    own = recipe(f"digits-b0-t5-{method}@demo")
    return own if epochs == DemoRecipe.epochs else override(own, {"epochs": str(epochs)})


def run_all(runs: list[tuple[Recipe, int, RunFolder]]) -> None:
    import torch

    from avalanche_hfc.cli.run_progress import RunBar
    from avalanche_hfc.runs.run import run

    torch.set_num_threads(1)  # the model is too small for two
    for number, (own, seed, place) in enumerate(runs, 1):
        name = own.name.removeprefix("digits-b0-t5-").removesuffix("@demo")
        title = f"{number}/{len(runs)} {DEMO_METHODS[name]}, seed {seed}"
        if not sys.stderr.isatty():
            click.echo(title, err=True)
        bar = RunBar(title)
        try:
            run(own, seed, place.path, progress=bar)
        finally:
            bar.close()
