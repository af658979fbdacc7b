"""The `hfc` command: parses, calls, prints. Nothing heavy is imported before a command runs:
`hfc --help` needs neither torch nor Avalanche.
"""

import sys
from importlib.metadata import version

import click

from avalanche_hfc._version import __version__
from avalanche_hfc.lab.cli.look import (
    data,
    diff,
    export,
    list_recipes,
    plan,
    predict,
    report,
    selftest,
    show,
)
from avalanche_hfc.lab.cli.ranks import LOST, after_first, launched, let_lost_end, lost_connection
from avalanche_hfc.lab.cli.tables import compare, demo, table
from avalanche_hfc.lab.cli.train import learn, pretrain, resume, run
from avalanche_hfc.lab.machine import LastingStream

__all__ = ["commands", "main"]

SHOWN = {"torch": "torch", "Avalanche": "avalanche-lib", "timm": "timm"}


def show_versions(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not context.resilient_parsing:
        click.echo(f"hfc {__version__}")
        for name, package in SHOWN.items():
            click.echo(f"{name} {version(package)}")
        context.exit()


DEBUG = "--debug"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(DEBUG, is_flag=True, expose_value=False, help="Show the whole traceback of an error.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_versions,
    help="Show the versions of hfc, torch, Avalanche and timm.",
)
def commands() -> None:
    """HFC, heterogeneous forgetting compensation, on Avalanche."""


for command in (
    demo,
    run,
    compare,
    resume,
    plan,
    predict,
    learn,
    export,
    pretrain,
    table,
    data,
    selftest,
    list_recipes,
    show,
    diff,
    report,
):
    commands.add_command(command)


def main() -> None:
    """Run the `hfc` command with the arguments of the process.

    A user's mistake is one line on stderr and exit code 2, any other error one line and exit code
    1; `--debug`, anywhere, shows the traceback of either.
    """
    debug = DEBUG in sys.argv[1:]
    sys.stderr = LastingStream(sys.stderr)
    try:
        commands(
            [word for word in sys.argv[1:] if word != DEBUG], prog_name="hfc", standalone_mode=False
        )
    except click.ClickException as error:
        after_first(error.message)
        error.show()
        sys.exit(error.exit_code)
    except (ValueError, OSError, FloatingPointError) as error:
        if debug:
            raise
        click.echo(f"hfc: {after_first(str(error))}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo(
            "\nhfc: interrupted. What is done is kept; the same command resumes it.", err=True
        )
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        if launched() and lost_connection(error):
            let_lost_end()
            sys.exit(LOST)
        words = f"unexpected error, {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        click.echo(
            f"hfc: {after_first(words)} (The same command with {DEBUG} shows where.)", err=True
        )
        sys.exit(1)
