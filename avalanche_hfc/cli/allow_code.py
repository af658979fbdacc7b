"""The option of commands that read a run folder."""

import click

allow_code = click.option(
    "--allow-code",
    is_flag=True,
    help="Import the class of a run whose method is module:Class. Only for folders you trust.",
)
