"""`hfc weights get`."""

import click

from avalanche_hfc.cli.loading import announce_loading


@click.group()
def weights() -> None:
    """Pre-trained weights."""


@weights.command()
@click.argument("name", metavar="BACKBONE")
def get(name: str) -> None:
    """Download timm's weights of BACKBONE, such as vit_base_patch16_224.mae, and check their sum.

    They are kept in the cache of Hugging Face, where the recipes of the paper look for them; on
    another machine, name a copy of the file with --model.weights.
    """
    announce_loading()
    from avalanche_hfc.models.backbone import check_name
    from avalanche_hfc.models.download import weights_file

    check_name(name)
    click.echo(f"Weights of {name}: {weights_file(name)}")
