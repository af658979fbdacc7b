"""`hfc predict`."""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from avalanche_hfc._names import printable
from avalanche_hfc.lab.cli.options import allow_code, announce_loading, device_option

if TYPE_CHECKING:
    from avalanche_hfc.lab.trained_run import Prediction

HEAD = "head"
TITLES = {HEAD: "head", "nearest mean": "nearest means"}
FIELDS = {HEAD: ("classes", "probability"), "nearest mean": ("nearest", "cosine")}  # of JSON


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument(
    "images", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="IMAGE…"
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
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
    that holds one run. Exit code 1 if an image cannot be read; the others are answered.
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
@click.argument("run", type=click.Path(path_type=Path))
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
    """Write the model of the finished RUN to a file that needs no part of this package.

    The model takes a batch of any size of images, prepared as in the run's evaluation, and gives
    logits. The file also holds the class names, as JSON.
    """
    announce_loading()
    from avalanche_hfc.lab.trained_run import export as write

    click.echo(f"Model: {write(run, to, out, allow_code=allow_code)}")


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


SHOWN = 4
DIGITS = 4  # of a number, or as many as it takes to see a difference
WORDS = {
    "lr": "learning rate",
    "fh": "forgetting heterogeneity",
    "digest": "digest of the weights",
    "accuracy_nme": "accuracy by nearest mean",
    "correct_nme": "correct by nearest mean",
    "brought_in": "step of the class",
}


@click.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
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
        for column, before, after in difference.columns[:SHOWN]:
            values = (
                ""
                if before is None or after is None
                else ": " + " and ".join(rounded(before, after))
            )
            click.echo(f"         {in_words(column)}{values}")
        if len(difference.columns) > SHOWN:
            click.echo(f"         and {len(difference.columns) - SHOWN} more columns")
    click.echo(
        f"The runs {'agree in all' if result.same else 'differ after'} {result.num_alike} rows."
    )
    sys.exit(0 if result.same else 1)


def in_words(column: str) -> str:
    """A column of the rows, in full words."""
    return WORDS.get(column, column.replace("_", " "))


def rounded(one: str, other: str) -> tuple[str, str]:
    """Two values as texts; two numbers with as few digits as tell them apart, 4 at least."""
    if not one or not other:
        return shortened(one) or "nothing", shortened(other) or "nothing"
    try:
        numbers = float(one), float(other)
    except ValueError:
        return one, other
    for digits in range(DIGITS, 18):
        texts = f"{numbers[0]:.{digits}g}", f"{numbers[1]:.{digits}g}"
        if texts[0] != texts[1]:
            return texts
    return one, other


def shortened(value: str) -> str:
    """A number with a decimal point in 4 digits; any other text as it is."""
    try:
        return f"{float(value):.{DIGITS}g}" if "." in value else value
    except ValueError:
        return value
