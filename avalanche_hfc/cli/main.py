"""Entry point of `hfc`. Nothing heavy is imported before a command runs: `hfc --help` needs neither
torch nor Avalanche.
"""

import sys

import click

from avalanche_hfc._version import __version__
from avalanche_hfc.cli.data import data
from avalanche_hfc.cli.demo import demo
from avalanche_hfc.cli.diff import diff
from avalanche_hfc.cli.export import export
from avalanche_hfc.cli.figure import figure
from avalanche_hfc.cli.learn import learn
from avalanche_hfc.cli.list import list_recipes
from avalanche_hfc.cli.plan import plan
from avalanche_hfc.cli.predict import predict
from avalanche_hfc.cli.pretrain import pretrain
from avalanche_hfc.cli.report import report
from avalanche_hfc.cli.resume import resume
from avalanche_hfc.cli.run import run
from avalanche_hfc.cli.selftest import selftest
from avalanche_hfc.cli.show import show
from avalanche_hfc.cli.table import table


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hfc")
def commands() -> None:
    """HFC, heterogeneous forgetting compensation, on Avalanche."""


commands.add_command(demo)
commands.add_command(run)
commands.add_command(resume)
commands.add_command(plan)
commands.add_command(predict)
commands.add_command(learn)
commands.add_command(export)
commands.add_command(pretrain)
commands.add_command(table)
commands.add_command(figure)
commands.add_command(data)
commands.add_command(selftest)
commands.add_command(list_recipes)
commands.add_command(show)
commands.add_command(diff)
commands.add_command(report)


def main() -> None:
    """Run a command. A user's mistake is one line on stderr and exit code 2."""
    try:
        commands(prog_name="hfc", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (ValueError, OSError, FloatingPointError) as error:
        click.echo(f"hfc: {error}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo(
            "\nhfc: interrupted. What is done is kept; the same command resumes it.", err=True
        )
        sys.exit(130)
