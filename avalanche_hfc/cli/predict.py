"""`hfc predict`."""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from avalanche_hfc._names import printable
from avalanche_hfc.cli.allow_code import allow_code
from avalanche_hfc.cli.device import device_option
from avalanche_hfc.cli.loading import announce_loading

if TYPE_CHECKING:
    from avalanche_hfc.tasks.predict import Prediction

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
    from avalanche_hfc.tasks.predict import predict as ask

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
