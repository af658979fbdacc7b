"""`hfc pretrain`."""

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from avalanche_hfc.cli.device import device_option
from avalanche_hfc.cli.loading import announce_loading
from avalanche_hfc.recipes.pretraining import DTYPES, PretrainRecipe
from avalanche_hfc.store.run_folder import RunFolder


def settings_as_options(command: Callable) -> Callable:
    """An option for every field of PretrainRecipe."""
    for field in reversed(fields(PretrainRecipe)):
        option_type: Any = click.Choice(DTYPES) if field.name == "dtype" else field.type
        command = click.option(
            f"--{field.name.replace('_', '-')}",
            type=option_type,
            default=field.default,
            show_default=field.default is not None,
            help=field.metadata["help"],
        )(command)
    return command


@click.command()
@click.argument("data", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("pretrained"),
    show_default=True,
    help="Run folder.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of weights, batches, crops and masks.",
)
@device_option
@settings_as_options
def pretrain(data: Path, out: Path, seed: int, device: str, **values: Any) -> None:
    """Pre-train a ViT on the images of DATA, without labels, as a masked autoencoder.

    DATA is a folder of images, at any depth, or an npz file with x_train. Writes
    OUT/encoder.safetensors, which --model.weights of `hfc run` loads. The same command resumes a
    run that was stopped.
    """
    recipe = PretrainRecipe(**{name: value for name, value in values.items() if value is not None})
    announce_loading()
    from avalanche_hfc.benchmarks.unlabelled import read_unlabelled
    from avalanche_hfc.engine.pretrain import PICTURES, WEIGHTS, check_pretraining, epochs_kept
    from avalanche_hfc.engine.pretrain import pretrain as train

    check_pretraining(recipe, seed, out, device)
    images = read_unlabelled(data, recipe.image_size)
    for remark in images.remarks:
        click.echo(remark, err=True)
    was_finished = RunFolder(out).finished
    bar = _bar(recipe.epochs, out)
    try:
        train(recipe, seed, out, images, device=device, progress=bar)
    except KeyboardInterrupt:
        bar.close()
        again, kept = shlex.join(["hfc", *sys.argv[1:]]), epochs_kept(out)
        click.echo(
            f"\nhfc: stopped. {out} keeps {kept} of {recipe.epochs} epochs. This goes on with "
            f"epoch {kept + 1}:\n{again}",
            err=True,
        )
        sys.exit(130)
    finally:
        bar.close()
    if was_finished:
        click.echo("This pre-training is finished; nothing was done.", err=True)
    click.echo(f"Weights: {out / WEIGHTS}. Reconstructions: {out / PICTURES}.")


def _bar(epochs: int, out: Path) -> Any:
    from avalanche_hfc.cli.run_progress import RunBar

    class PretrainBar(RunBar):
        """A bar on a terminal, a line per epoch elsewhere."""

        words = "pre-training"

        def describe(self) -> str:
            return self.words

        def epoch(self, row: Mapping[str, Any]) -> None:
            self.words = f"epoch {row['epoch'] + 1}/{epochs}: loss {row['loss']:.4f}"
            self.bar.set_description_str(self.words)
            if self.bar.disable:
                click.echo(f"{self.words}, {row['seconds']:.0f} s", err=True)

    return PretrainBar(f"pre-training in {out}")
