"""What a command says before it loads torch."""

import sys

import click

from avalanche_hfc.engine.host_warnings import silence_host


def announce_loading() -> None:
    """Say that torch and Avalanche are being loaded, unless they are, and silence the host."""
    silence_host()
    if "torch" not in sys.modules:
        click.echo("Loading torch and Avalanche …", err=True)
