"""`hfc predict`."""

from pathlib import Path

import click

from avalanche_hfc.engine.host_warnings import quiet_host


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
@click.option("--device", default="cpu", show_default=True, help="cpu, cuda, cuda:1, …")
def predict(run: Path, images: tuple[Path, ...], top: int, device: str) -> None:
    """What the finished RUN takes each IMAGE for: class names and probabilities.

    Images of any size are resized as in the run's evaluation. Where the method also has means of
    exemplars, the nearest are named, with the cosine between image and mean.
    """
    quiet_host()
    click.echo("Loading torch and Avalanche …", err=True)
    from avalanche_hfc.tasks.predict import predict as ask

    for found in ask(run, images, top=top, device=device):
        click.echo(found.path)
        for name, probability in found.head:
            click.echo(f"  {probability:6.1%}  {name}")
        if found.nearest is not None:
            click.echo("  nearest means")
            for name, cosine in found.nearest:
                click.echo(f"  {cosine:6.3f}  {name}")
