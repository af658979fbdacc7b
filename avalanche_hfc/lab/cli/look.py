"""`hfc list`."""

import json
import sys
from pathlib import Path

import click

from avalanche_hfc._names import counted
from avalanche_hfc.lab import Recipe, override, recipe
from avalanche_hfc.lab.cli.options import RecipeCommand, announce_loading, overrides_of, recipes
from avalanche_hfc.lab.describe import (
    HFC_FORMS,
    command,
    cost,
    expectation,
    other_forms,
    text_of,
)
from avalanche_hfc.lab.listing import digest, matching, tables_of
from avalanche_hfc.lab.schema import SCALES
from avalanche_hfc.lab.tables import FURTHER_TABLES


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


@click.command(cls=RecipeCommand)
@click.argument("name", metavar="RECIPE", shell_complete=recipes)
@click.pass_context
def show(context: click.Context, name: str) -> None:
    """Every value of RECIPE with its source, its command, cost and what to expect.

    Values can be changed: hfc show cifar100-b0-t10-hfc@small --epochs 3 --method.relation-weight
    0.5
    """
    announce_loading()
    chosen = override(recipe(name), overrides_of(context.args))
    click.echo(chosen.name)
    summary = {
        "command": command(chosen),
        "cost": cost(chosen),
        "expect": expectation(chosen),
        "tables": ", ".join(tables_of(name)),
    }
    for heading, text in summary.items():
        click.echo(f"  {heading:8} {text}")
    show_values(chosen)
    show_forms(chosen)


def show_values(chosen: Recipe) -> None:
    leaves = {leaf: text_of(value) for leaf, value in chosen.leaves().items()}
    widths = max(map(len, leaves)), max(map(len, leaves.values()))
    section = ""
    for leaf, text in leaves.items():
        if leaf.split(".")[0] != section:
            section = leaf.split(".")[0]
            click.echo()
        click.echo(f"{leaf:{widths[0]}}  {text:{widths[1]}}  {chosen.sources[leaf]}")


def show_forms(chosen: Recipe) -> None:
    if chosen.method.name != "hfc":
        return
    click.echo(
        "\nmethod.form, the losses of HFCStrategy (z: share of old classes); those of this "
        "recipe are marked *"
    )
    form_of_recipe = dict(chosen.method.options)["form"]
    for form, parts in HFC_FORMS.items():
        click.echo(
            f"{'*' if form == form_of_recipe else ' '} {form:9} "
            + "; ".join(f"{section}: {words}" for section, words in parts.items())
        )
    for name, changed in other_forms(chosen).items():
        click.echo(f"\n{name} changes")
        for leaf, (here, there) in changed.items():
            click.echo(f"  {leaf}: {text_of(here)} -> {text_of(there)}")


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
        from avalanche_hfc.benchmarks.sources import download_cifar100

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


@click.command()
def selftest() -> None:
    """Check this installation in seconds.

    Formulas against loops, golden values, checksums of the class orders, and a training that is
    stopped and resumed. Exit code 1 if a check fails.
    """
    announce_loading()
    import torch

    from avalanche_hfc.lab.selftest import Failed, checks

    torch.set_num_threads(1)
    failed = 0
    for name, check in checks():
        try:
            check()
            click.echo(f"ok      {name}")
        except Failed as error:
            failed += 1
            click.echo(f"FAILED  {name}: {error}")
    if failed:
        click.echo(
            f"{failed} checks failed: results of this installation are not to be trusted.", err=True
        )
    sys.exit(1 if failed else 0)
