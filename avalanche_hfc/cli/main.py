"""Entry point of `hfc`. Nothing heavy is imported before a command runs: `hfc --help` needs neither
torch nor Avalanche.
"""

import sys
from importlib.metadata import version

import click

from avalanche_hfc._version import __version__
from avalanche_hfc.cli.compare import compare
from avalanche_hfc.cli.data import data
from avalanche_hfc.cli.demo import demo
from avalanche_hfc.cli.diff import diff
from avalanche_hfc.cli.export import export
from avalanche_hfc.cli.learn import learn
from avalanche_hfc.cli.list import list_recipes
from avalanche_hfc.cli.plan import plan
from avalanche_hfc.cli.predict import predict
from avalanche_hfc.cli.pretrain import pretrain
from avalanche_hfc.cli.ranks import LOST, after_first, launched, let_lost_end, lost_connection
from avalanche_hfc.cli.report import report
from avalanche_hfc.cli.resume import resume
from avalanche_hfc.cli.run import run
from avalanche_hfc.cli.selftest import selftest
from avalanche_hfc.cli.show import show
from avalanche_hfc.cli.table import table

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


commands.add_command(demo)
commands.add_command(run)
commands.add_command(compare)
commands.add_command(resume)
commands.add_command(plan)
commands.add_command(predict)
commands.add_command(learn)
commands.add_command(export)
commands.add_command(pretrain)
commands.add_command(table)
commands.add_command(data)
commands.add_command(selftest)
commands.add_command(list_recipes)
commands.add_command(show)
commands.add_command(diff)
commands.add_command(report)


def main() -> None:
    """Run the `hfc` command with the arguments of the process.

    A user's mistake is one line on stderr and exit code 2, any other error one line and exit code
    1; `--debug`, anywhere, shows the traceback of either.
    """
    debug = DEBUG in sys.argv[1:]
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
