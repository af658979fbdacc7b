"""The option of all commands that compute."""

import click

DEVICE_HELP = "auto: the GPU if torch finds one, else the CPU. Or as torch calls it: cpu, cuda:1."
device_option = click.option("--device", default="auto", show_default=True, help=DEVICE_HELP)
