"""Options that do not exist, versions, completion, and the package as a program."""

import re
import subprocess
import sys
from difflib import get_close_matches

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from avalanche_hfc.lab import all_names, recipe
from avalanche_hfc.lab.cli import commands
from avalanche_hfc.lab.cli.options import NEAR, RecipeCommand

NAME = "digits-b0-t5-hfc@demo"


def refused(*arguments):
    result = CliRunner().invoke(commands, arguments)
    assert result.exit_code == 2, result.output
    return result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("run", NAME, "--seedz", "3"),
            "No such option --seedz. Did you mean one of --seed, --seeds?",
        ),
        (
            ("run", "--seedz=3", NAME),
            "No such option --seedz. Did you mean one of --seed, --seeds?",
        ),
        (("run", NAME, "--tensorbord"), "No such option --tensorbord. Did you mean"),
        (("table", "fh", "--job", "2"), "No such option --job. Did you mean --jobs?"),
        (("plan", NAME, "--sintetic"), "No such option --sintetic. Did you mean"),
        (("show", NAME, "--fish"), "--fish needs a value, as in --fish 3. It is not an option"),
    ],
)
def test_a_misspelt_option_is_an_option_first(arguments, said):
    output = " ".join(refused(*arguments).split())
    assert said in re.sub("[':()]", "", output)  # releases of click punctuate differently
    assert "Known" not in output


def test_values_of_a_recipe_may_stand_anywhere():
    result = CliRunner().invoke(
        commands, ["show", "--epochs", "3", NAME, "--lr=0.5"], catch_exceptions=False
    )
    assert f"hfc run {NAME} --train.epochs=3 --train.lr=0.5\n" in result.stdout


def test_an_unknown_value_is_answered_without_a_list_of_all():
    with pytest.raises(ValueError, match=rf"has no value 'fish'\. `hfc show {NAME}` lists"):
        CliRunner().invoke(commands, ["show", NAME, "--fish", "3"], catch_exceptions=False)


def test_no_value_of_a_recipe_looks_like_a_misspelt_option():
    """Else it could not be given by its short name."""
    values = {leaf.split(".", 1)[1] for name in all_names("demo") for leaf in recipe(name).leaves()}
    values -= {field for part in ("data", "train", "memory") for field in fields_of(part)}
    for command in commands.commands.values():
        if isinstance(command, RecipeCommand):
            options = [one for one in command.params if isinstance(one, click.Option)]
            own = [word for option in options for word in option.opts]
            near = {
                value: found
                for value in values
                if (found := get_close_matches("--" + value.replace("_", "-"), own, cutoff=NEAR))
                and "--" + value.replace("_", "-") not in own
            }
            assert near == {}, command.name


def fields_of(part):
    return {leaf.split(".", 1)[1] for leaf in recipe(NAME).leaves() if leaf.startswith(f"{part}.")}


def test_help_lists_the_values_of_every_recipe():
    said = CliRunner().invoke(commands, ["run", "--help"]).output
    leaves = [leaf for leaf in recipe(NAME).leaves() if leaf.split(".")[0] in ("data", "train")]
    assert leaves and all(f"--{leaf.replace('_', '-')}" in said for leaf in leaves)


def test_the_device_is_chosen_and_a_recipe_of_the_paper_names_its_own():
    for name in ("run", "learn", "predict", "plan", "table", "pretrain", "compare"):
        device = next(p for p in commands.commands[name].params if "--device" in p.opts)
        assert device.default in ("auto", ["auto"], ("auto",)), name
    shown = CliRunner().invoke(commands, ["show", "cifar100-b0-t10-hfc@paper"]).stdout
    assert "hfc run cifar100-b0-t10-hfc@paper --data FOLDER --device cuda\n" in shown


def test_recipe_and_table_names_complete():
    completer = ShellComplete(commands, {}, "hfc", "_HFC_COMPLETE")

    def complete(*words):
        return {item.value for item in completer.get_completions(list(words[:-1]), words[-1])}

    wanted = {name for name in all_names() if name.startswith("digits-b0-t5-pod")}
    assert wanted and complete("run", "digits-b0-t5-pod") == wanted
    assert complete("show", "digits-b0-t5-pod") == wanted
    assert complete("table", "cifar") == {"cifar100"}
    assert complete("plan", "imagenet1000") > {"imagenet1000"}


def test_the_package_is_a_program_and_tells_versions_without_torch():
    program = [sys.executable, "-X", "importtime", "-m", "avalanche_hfc", "--version"]
    result = subprocess.run(program, capture_output=True, text=True, check=True)
    names = [line.split()[0] for line in result.stdout.splitlines()]
    assert names == ["hfc", "torch", "Avalanche", "timm"]
    assert all(re.fullmatch(r"\w+ \d+\.\d+\S*", line) for line in result.stdout.splitlines())
    assert not re.search(r"\| +torch$", result.stderr, re.MULTILINE)
