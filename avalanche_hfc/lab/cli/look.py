"""Commands that train no run: `hfc list`, `show`, `plan`, `data`, `selftest`, `predict`, `export`,
`report` and `diff`.
"""

import csv
import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from avalanche_hfc._names import counted, printable
from avalanche_hfc.lab import FURTHER_TABLES, SCALES, Recipe, override, recipe
from avalanche_hfc.lab.cli.options import (
    AT_LEAST_1,
    DEVICE_HELP,
    FOLDER,
    PATH,
    RecipeCommand,
    all_names,
    allow_code,
    announce_loading,
    device_option,
    recipe_names,
)
from avalanche_hfc.lab.describe import (
    HFC_FORMS,
    command,
    cost,
    duration,
    expectation,
    other_forms,
    text_of,
)
from avalanche_hfc.lab.overrides import with_data
from avalanche_hfc.lab.tables import ALL_TABLES, digest, matching, tables_of

if TYPE_CHECKING:
    from avalanche_hfc.lab.trained_run import Prediction

SHOWN = 5  # places of a fault in the data, without --all
COLUMNS_SHOWN = 4  # that differ, of a row
HEAD = "head"
TITLES = {HEAD: "head", "nearest mean": "nearest means"}
FIELDS = {HEAD: ("classes", "probability"), "nearest mean": ("nearest", "cosine")}  # of JSON
WORDS = {
    "lr": "learning rate",
    "fh": "forgetting heterogeneity",
    "digest": "digest of the weights",
    "accuracy_nme": "accuracy by nearest mean",
    "correct_nme": "correct by nearest mean",
    "brought_in": "step of the class",
}  # columns, in full


@click.command("list")
@click.argument("pattern", required=False)
def list_recipes(pattern: str | None) -> None:
    """The recipes, by table and scale. PATTERN is part of a name or a shell pattern: hfc list
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
            "\nhfc list PATTERN names each; hfc show RECIPE shows its values; hfc run RECIPE "
            "runs it."
        )


@click.command(cls=RecipeCommand)
@click.argument("name", metavar="RECIPE", shell_complete=recipe_names)
def show(name: str, overrides: dict[str, str]) -> None:
    """Every value of RECIPE with its source, its command, cost and what to expect.

    Values can be changed: hfc show cifar100-b0-t10-hfc@small --epochs 3 --method.relation-weight
    0.5
    """
    announce_loading()
    changed = override(recipe(name), overrides)
    click.echo(changed.name)
    click.echo(f"  command  {command(changed)}")
    click.echo(f"  cost     {cost(changed)}")
    click.echo(f"  expect   {expectation(changed)}")
    click.echo(f"  tables   {', '.join(tables_of(name))}")
    show_values(changed)
    if changed.method.name == "hfc":
        show_forms(changed)


def show_values(changed: Recipe) -> None:
    leaves = {leaf: text_of(value) for leaf, value in changed.leaves().items()}
    widths = max(map(len, leaves)), max(map(len, leaves.values()))
    section = ""
    for leaf, text in leaves.items():
        if not leaf.startswith(f"{section}."):
            section = leaf.split(".")[0]
            click.echo()
        click.echo(f"{leaf:{widths[0]}}  {text:{widths[1]}}  {changed.sources[leaf]}")


def show_forms(changed: Recipe) -> None:
    click.echo(
        "\nmethod.form, the losses of HFCStrategy (z: share of old classes); those of this "
        "recipe are marked *"
    )
    form_of_recipe = dict(changed.method.options)["form"]
    for form, parts in HFC_FORMS.items():
        click.echo(
            f"{'*' if form == form_of_recipe else ' '} {form:9} "
            + "; ".join(f"{section}: {words}" for section, words in parts.items())
        )
    for name, differing in other_forms(changed).items():
        click.echo(f"\n{name} changes")
        for leaf, (here, there) in differing.items():
            click.echo(f"  {leaf}: {text_of(here)} -> {text_of(there)}")


@click.command(cls=RecipeCommand)
@click.argument("name", metavar="RECIPE|TABLE", shell_complete=all_names)
@click.option(
    "--device",
    "devices",
    multiple=True,
    default=["auto"],
    show_default=True,
    help=f"{DEVICE_HELP} Can be repeated.",
)
@click.option(
    "--scale",
    type=click.Choice(list(SCALES)),
    default="demo",
    show_default=True,
    help="Scale of a table.",
)
@click.option(
    "--seeds",
    type=AT_LEAST_1,
    default=1,
    show_default=True,
    help="For a table: number of runs of each recipe.",
)
@click.option("--data", "data_root", type=PATH, help="Where the data is.")
@click.option(
    "--synthetic", is_flag=True, help="Use random images of the right size instead of the data."
)
@click.option(
    "--batches",
    type=AT_LEAST_1,
    default=3,
    show_default=True,
    help="Training batches to time in each of two steps.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="For a recipe: time nothing, but say which precision fits a GPU with this much memory, "
    "such as 8GB.",
)
def plan(
    name: str,
    overrides: dict[str, str],
    devices: Sequence[str],
    scale: str,
    seeds: int,
    data_root: Path | None,
    synthetic: bool,
    batches: int,
    memory: str | None,
) -> None:
    """Hours, memory and disk that RECIPE, or all runs of TABLE, need, from a few timed batches.
    Nothing is written.

    Values can be changed as in hfc run: hfc plan digits-b0-t5-hfc@demo --epochs 3. A table is added
    up for each device: hfc plan cifar100 --scale paper --synthetic --device cpu --device cuda
    """
    announce_loading()
    from avalanche_hfc.lab.plan import plan_all
    from avalanche_hfc.lab.ranks import check_device
    from avalanche_hfc.lab.table import cells_of, runs_of

    devices = [check_device(device) for device in devices]
    is_table = name in ALL_TABLES
    if memory is not None:
        if is_table:
            raise click.UsageError(f"--memory is for a recipe; {name} is a table.")
        tell_memory(override(recipe(name), overrides), memory)
        return
    if is_table:
        changed = [run.recipe for run in runs_of(cells_of(name, scale), 1, Path(), overrides)]
    else:
        changed = [override(recipe(name), overrides)]
        if data_root is not None:
            changed = [with_data(changed[0], data_root)]
    for device in devices:
        finished = []
        estimates = plan_all(
            changed, device=device, data_root=data_root, synthetic=synthetic, batches=batches
        )
        try:
            for planned, estimate in estimates:
                if is_table:
                    click.echo(f"{planned.name}: {duration(estimate.seconds)}", err=True)
                finished.append(estimate)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{error} Or estimate from random images: --synthetic."
            ) from error
        if is_table:
            tell_table(f"{name} @{scale}", device, finished, seeds, synthetic=synthetic)
        else:
            tell_recipe(changed[0], device, finished[0], synthetic=synthetic)


def tell_memory(changed: Recipe, memory: str) -> None:
    """Which precision fits, and whether activations must be checkpointed."""
    from avalanche_hfc.lab.plan import advice, fits, num_bytes

    room = num_bytes(memory)
    found = fits(changed)
    click.echo(f"{changed.name} in {size(room)}, about")
    for fit in found:
        holds = (
            "fits"
            if fit.whole <= room
            else f"fits with checkpointed activations ({size(fit.least)})"
            if fit.least <= room
            else "does not fit"
        )
        click.echo(
            f"  {fit.precision:<9} {size(fit.fixed)} and {size(fit.per_image)} per image, "
            f"{size(fit.whole)} for {fit.batch_size} images: {holds}"
        )
    click.echo(f"  hfc run   {advice(found, room) or 'no setting fits'}")


def tell_table(
    name: str, device: str, estimates: Sequence[Any], seeds: int, *, synthetic: bool
) -> None:
    """The sum over all runs, one after the other."""
    click.echo(f"{name} on {device}{', from random images' if synthetic else ''}")
    recipes = counted(len(estimates), "recipe")
    click.echo(f"  runs    {seeds * len(estimates)}: {recipes}, {counted(seeds, 'seed')} each")
    click.echo(
        f"  time    about {duration(seeds * sum(estimate.seconds for estimate in estimates))}"
    )
    click.echo(f"  memory  {size(max(estimate.measured.memory for estimate in estimates))} at most")
    tell_disk(
        seeds * sum(estimate.disk for estimate in estimates),
        "all runs, up to three checkpoints each",
    )


def tell_disk(needed: int, of_what: str) -> None:
    free = shutil.disk_usage(Path.cwd()).free
    click.echo(f"  disk    {size(needed)}: {of_what}")
    click.echo(
        f"          free in this folder: {size(free)}{'' if free > needed else ': too little'}"
    )


def tell_recipe(changed: Recipe, device: str, estimate: Any, *, synthetic: bool) -> None:
    click.echo(f"{changed.name} on {device}{', from random images' if synthetic else ''}")
    click.echo(f"  time    about {duration(estimate.seconds)}")
    first, later = estimate.measured.rates
    click.echo(
        f"          training {duration(sum(estimate.training))}: "
        f"{estimate.images:,} images, all epochs;"
    )
    click.echo(f"          {first:.0f} images/s in the first step, {later:.0f} in later ones")
    click.echo(
        f"          evaluation and herding {duration(estimate.evaluation)}: "
        f"{estimate.measured.eval_rate:.0f} images/s"
    )
    click.echo(f"          network, exemplars, checkpoints and files {duration(estimate.fixed)}")
    click.echo(
        f"  memory  {size(estimate.measured.memory)} at most, "
        f"{'of the device' if device.startswith('cuda') else 'of the process'}"
    )
    tell_disk(
        estimate.disk,
        f"up to three checkpoints of {size(estimate.measured.checkpoint)}, "
        f"rows {size(estimate.rows)}",
    )


def size(num_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.1f} {unit}"
    return f"{num_bytes / 1e3:.0f} kB"


@click.group()
def data() -> None:
    """Your images."""


@data.command()
@click.argument("path", type=PATH, metavar="FOLDER_OR_NPZ")
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help=f"List all places of a problem, not only the first {SHOWN}.",
)
@click.option("--skip-bad", is_flag=True, help="Leave out bad files, as `hfc run --skip-bad` does.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option(
    "--download",
    is_flag=True,
    help="Download CIFAR-100 into this folder, unless it is there, and check its MD5 sums.",
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
            f"{failed} checks failed: do not trust the results of this installation.", err=True
        )
    sys.exit(1 if failed else 0)


@click.command()
@click.argument("run", type=PATH)
@click.argument("images", nargs=-1, required=True, type=PATH, metavar="IMAGE…")
@click.option(
    "--top",
    type=AT_LEAST_1,
    default=5,
    show_default=True,
    help="Classes to name for each image.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
@click.option("--csv", "as_csv", is_flag=True, help="Print a row per image and class.")
@device_option
@allow_code
def predict(
    run: Path,
    images: tuple[Path, ...],
    top: int,
    as_json: bool,
    as_csv: bool,
    device: str,
    allow_code: bool,
) -> None:
    """What the finished RUN predicts for each IMAGE: class names and probabilities.

    An IMAGE may be a folder: all images in it, at any depth. Images of any size are resized as in
    the run's evaluation. Where the method also has means of exemplars, the nearest are named, with
    the cosine between image and mean. The classifier that the run's accuracy is measured by comes
    first: the nearest means for icarl, the head for most methods. RUN may be the folder of a recipe
    that holds one run. Exit code 1 if an image cannot be read; the others are still
    predicted.
    """
    if as_json and as_csv:
        raise click.UsageError("Choose --json or --csv, not both.")
    announce_loading()
    from avalanche_hfc.lab.trained_run import predict as ask

    found = ask(run, images, top=top, device=device, allow_code=allow_code)
    if as_json:
        click.echo(json.dumps([as_object(one) for one in found], indent=2, ensure_ascii=False))
    elif as_csv:
        print_rows(found)
    else:
        print_lines(found)
    unread = [one for one in found if one.error is not None]
    for one in unread:
        click.echo(f"{printable(str(one.path))} cannot be read: {one.error}.", err=True)
    if unread:
        sys.exit(1)


def as_object(found: "Prediction") -> dict[str, object]:
    """A prediction as JSON has it: `class` is the answer, of the classifier that is named."""
    if found.error is not None:
        return {"path": str(found.path), "error": found.error}
    first, names = found.classifiers[0]
    answer: dict[str, object] = {
        "path": str(found.path),
        "class": names[0][0],
        "classifier": first,
    }
    for classifier, names in found.classifiers:
        key, value = FIELDS[classifier]
        answer[key] = [{"class": name, value: number} for name, number in names]
    return answer


def print_rows(predictions: Sequence["Prediction"]) -> None:
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(("path", "classifier", "rank", "class", "value"))
    for found in predictions:
        for classifier, names in found.classifiers:
            rows.writerows(
                (found.path, classifier, rank, name, value)
                for rank, (name, value) in enumerate(names, 1)
            )


def print_lines(predictions: Sequence["Prediction"]) -> None:
    for found in predictions:
        if found.error is not None:
            continue
        click.echo(printable(str(found.path)))
        for place, (classifier, names) in enumerate(found.classifiers):
            if place or classifier != HEAD:
                click.echo(f"  {TITLES[classifier]}")
            for name, value in names:
                text = f"{value:6.1%}" if classifier == HEAD else f"{value:6.3f}"
                click.echo(f"  {text}  {name}")


@click.command()
@click.argument("run", type=PATH)
@click.option(
    "--to",
    type=click.Choice(["onnx", "torchscript", "safetensors"]),
    required=True,
    help="Format; safetensors holds the weights alone, onnx needs avalanche_hfc[onnx].",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file  [default: model.onnx, model.pt or model.safetensors in RUN]",
)
@allow_code
def export(run: Path, to: str, out: Path | None, allow_code: bool) -> None:
    """Write the model of the finished RUN to a file that can be loaded without this package.

    The model takes a batch of any size of images, prepared as in the run's evaluation, and gives
    logits. The file also holds the class names, as JSON.
    """
    announce_loading()
    from avalanche_hfc.lab.trained_run import export as write

    click.echo(f"Model: {write(run, to, out, allow_code=allow_code)}")


@click.command()
@click.argument("folders", nargs=-1, required=True, type=PATH, metavar="FOLDER…")
@click.option(
    "--out",
    type=FOLDER,
    default=Path("report"),
    show_default=True,
    help="Where to write it.",
)
@click.option(
    "--paper",
    type=PATH,
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
    type=PATH,
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


@click.command()
@click.argument("first", type=PATH)
@click.argument("second", type=PATH)
def diff(first: Path, second: Path) -> None:
    """Where two runs differ.

    Names the settings that differ, and the first epoch, step and class whose numbers do; train.csv
    holds a digest of the weights after every epoch. Times and memory do not count. Exit code 1 if
    the runs differ.
    """
    from avalanche_hfc.lab.read import diff_runs

    result = diff_runs(first, second)
    for name, one, other in result.changed:
        click.echo(f"setting  {name}: {' and '.join(rounded(one, other))}")
    for difference in result.differences:
        click.echo(f"{difference.file}.csv differs from {difference.where} on")
        for column, before, after in difference.columns[:COLUMNS_SHOWN]:
            values = (
                ""
                if before is None or after is None
                else ": " + " and ".join(rounded(before, after))
            )
            click.echo(f"         {in_words(column)}{values}")
        if len(difference.columns) > COLUMNS_SHOWN:
            click.echo(f"         and {len(difference.columns) - COLUMNS_SHOWN} more columns")
    click.echo(
        f"The runs {'agree in all' if result.same else 'differ after'} {result.num_alike} rows."
    )
    sys.exit(0 if result.same else 1)


def in_words(column: str) -> str:
    """A column of the rows, in full words."""
    return WORDS.get(column, column.replace("_", " "))


def rounded(one: str, other: str) -> tuple[str, str]:
    """Two values as texts, with as few digits as tell them apart, 4 at least."""
    for digits in range(4, 17):
        texts = shortened(one, digits), shortened(other, digits)
        if texts[0] != texts[1]:
            return texts
    return one, other


def shortened(value: str, digits: int) -> str:
    """A number with a decimal point in so many digits; any other text as it is."""
    with suppress(ValueError):
        return f"{float(value):.{digits}g}" if "." in value else value or "nothing"
    return value
