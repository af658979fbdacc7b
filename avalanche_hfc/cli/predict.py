"""`hfc predict`."""

from pathlib import Path

import click

from avalanche_hfc.cli.allow_code import allow_code
from avalanche_hfc.cli.device import device_option
from avalanche_hfc.cli.loading import announce_loading


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
@device_option
@allow_code
def predict(run: Path, images: tuple[Path, ...], top: int, device: str, allow_code: bool) -> None:
    """What the finished RUN predicts for each IMAGE: class names and probabilities.

    Images of any size are resized as in the run's evaluation. Where the method also has means of
    exemplars, the nearest are named, with the cosine between image and mean.
    """
    announce_loading()
    from avalanche_hfc.tasks.predict import predict as ask

    for found in ask(run, images, top=top, device=device, allow_code=allow_code):
        click.echo(found.path)
        for name, probability in found.head:
            click.echo(f"  {probability:6.1%}  {name}")
        if found.nearest is not None:
            click.echo("  nearest means")
            for name, cosine in found.nearest:
                click.echo(f"  {cosine:6.3f}  {name}")
