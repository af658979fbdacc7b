"""`hfc export`."""

from pathlib import Path

import click

from avalanche_hfc.cli.allow_code import allow_code
from avalanche_hfc.cli.loading import announce_loading


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
    from avalanche_hfc.tasks.export import export as write

    click.echo(f"Model: {write(run, to, out, allow_code=allow_code)}")
