"""`hfc figure`."""

from pathlib import Path
from typing import Any

import click

from avalanche_hfc.cli.overrides import RecipeCommand, overrides_of
from avalanche_hfc.cli.table_options import run_options


@click.command(cls=RecipeCommand)
@click.argument("name", metavar="NAME")
@click.option(
    "--table", help="The table whose cells are drawn  [default: that of the paper's figure]"
)
@run_options
@click.option(
    "--figures",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the figures  [default: OUT/figures]",
)
@click.pass_context
def figure(
    context: click.Context, name: str, table: str | None, figures: Path | None, **options: Any
) -> None:
    """Figure NAME of the paper, as PNG and SVG: accuracy (per step), fh (against accuracy) or
    convergence.

    Runs what is missing, as hfc table does: hfc figure accuracy --table imagenet100 --only hfc
    --only icarl. Exit code 1 if a run failed.
    """
    from avalanche_hfc._names import lookup
    from avalanche_hfc.cli.table_runs import end, none_finished, run_cells
    from avalanche_hfc.report.paper_figures import FIGURES, cells_drawn, lines_of, write_figure
    from avalanche_hfc.report.paper_table import paper_of
    from avalanche_hfc.tasks.table import cells_of, check_writable, named_as_run

    chosen = lookup(FIGURES, name, "figure")
    table = table or chosen.table
    rows = options["only"] or chosen.rows
    cells = cells_drawn(chosen, cells_of(table, options["scale"], rows))
    if not cells:
        raise ValueError(
            f"Figure {name} shows no cell of table "
            f"{table}{' in the rows ' + ', '.join(rows) if rows else ''}."
        )
    paper = paper_of(options["paper"])
    folder = figures or options["out"] / "figures"
    check_writable(folder)
    done = run_cells(cells, context.args, options)
    if done.finished:
        cells = named_as_run(cells, overrides_of(context.args))
        drawn = chosen.draw(lines_of(cells, done.finished), paper)
        files = write_figure(
            drawn, folder, "-".join([name, table, options["scale"], *options["only"]])
        )
        click.echo(f"Figure: {', '.join(map(str, files))}")
    end(done)
    if not done.finished:
        raise none_finished(table, options)
