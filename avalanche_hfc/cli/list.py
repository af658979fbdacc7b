"""`hfc list`."""

import click

from avalanche_hfc.recipes.listing import digest, matching
from avalanche_hfc.recipes.schema import SCALES
from avalanche_hfc.recipes.tables import FURTHER_TABLES


@click.command("list")
@click.argument("pattern", required=False)
def list_recipes(pattern: str | None) -> None:
    """The recipes, by table and scale. PATTERN is a part of a name or a shell's pattern: hfc list
    'cifar100-*-hfc@*'.

    Without PATTERN names are written with braces, which a shell expands; hfc list '*' writes each
    on a line of its own.
    """
    if pattern is None:
        for scale, words in SCALES.items():
            click.echo(f"@{scale}: {words}")
    for (table, scale), lines in (digest() if pattern is None else matching(pattern)).items():
        remark = " (no numbers of the paper)" if table in FURTHER_TABLES else ""
        click.echo(f"\n{table} @{scale}{remark}")
        for line in lines:
            click.echo(f"  {line}")
    if pattern is None:
        click.echo(
            "\nYour data: folder-t5-hfc@small, npz-b50-t4-podnet+hfc@demo, with --data."
            "\nYour method, module:Class: folder-t5-mymethods:Mine+hfc@small, "
            "cifar100-b0-t10-mymethods:Mine@small."
        )
        click.echo(
            "\nhfc list PATTERN names each; hfc show RECIPE tells its values; hfc run RECIPE "
            "runs it."
        )
