"""`hfc table`."""

from pathlib import Path
from typing import Any

import click

from avalanche_hfc.cli.completion import tables as table_names
from avalanche_hfc.cli.loading import announce_loading
from avalanche_hfc.cli.overrides import RecipeCommand, overrides_of
from avalanche_hfc.cli.table_options import run_options


@click.command(cls=RecipeCommand)
@click.argument("name", metavar="NAME", shell_complete=table_names)
@run_options
@click.option(
    "--add",
    multiple=True,
    metavar="METHOD",
    help="A row for a method that you wrote, as module:Class or module:Class+hfc; may be given "
    "several times.",
)
@click.option(
    "--tables",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the tables  [default: OUT/tables]",
)
@click.pass_context
def table(
    context: click.Context, name: str, add: tuple[str, ...], tables: Path | None, **options: Any
) -> None:
    """Table NAME as CSV, markdown and LaTeX, with its figures as PNG; for a table of the paper our
    number, the paper's and the gap.

    Runs what is missing, each run in a folder of its own that other tables share; a finished one is
    not run again. Values of the recipes can be changed: hfc table cifar100 --epochs 3. --add
    mymethods:Mine adds a row for a method that you wrote. Exit code 1 if a run failed.

    \b
    cifar100  imagenet100  imagenet1000  plug-and-play  ablation  per-class-20  fh
    steps-imagenet100  steps-imagenet1000  steps-plug-and-play
    avalanche  hfc-forms  practical  methods (no numbers of the paper)
    comparison  protocols  memory  initialisation  order (at scale small)
    """
    from avalanche_hfc.cli.table_runs import end, none_finished, run_cells
    from avalanche_hfc.report.paper_figures import figures_of
    from avalanche_hfc.report.paper_table import (
        paper_of,
        steps_of,
        table_of,
        title_of,
        write_table,
    )
    from avalanche_hfc.store.read import read_runs
    from avalanche_hfc.store.rows import replace_file
    from avalanche_hfc.tasks.table import cells_of, check_writable, named_as_run

    if add:
        announce_loading()  # their classes are read at once
    cells = cells_of(name, options["scale"], options["only"], add)
    paper = paper_of(options["paper"])
    folder = tables or options["out"] / "tables"
    check_writable(folder)
    done = run_cells(cells, context.args, options)
    if done.finished:
        scale, title = options["scale"], title_of(name, options["scale"], done.overrides, paper)
        runs, _ = read_runs([run.folder for run in done.finished])
        cells = named_as_run(cells, overrides_of(context.args))
        recipes = {run.recipe.name: run.recipe for run in done.finished}
        numbers = table_of(name, scale, cells, steps_of(runs), paper, recipes)
        stem = "-".join([name, scale, *options["only"], *add])
        files = write_table(name, numbers, folder, stem, title, cells=cells, runs=runs)
        drawn = figures_of(name, cells, runs, recipes, paper, only=options["only"])
        figures = [folder / f"{stem}-{figure}.png" for figure in drawn]
        for path, picture in zip(figures, drawn.values(), strict=True):
            replace_file(path, picture)
        click.echo(files[1].read_text())
        if paper is None:
            click.echo(
                "The paper's numbers are not available: there is no experiments/paper.csv next to "
                "the package. Use --paper FILE.",
                err=True,
            )
        click.echo(f"Tables: {', '.join(map(str, files))}")
        if figures:
            click.echo(f"Figures: {', '.join(map(str, figures))}")
    end(done)
    if not done.finished:
        raise none_finished(name, options)
