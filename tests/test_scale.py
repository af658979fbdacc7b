"""The page on scale: its files to copy work, its commands exist, its costs follow from the committed
rows of the bench.
"""

import csv
import os
import re
import shlex
import subprocess

import pytest
import yaml
from click.testing import CliRunner
from pages import DOCS, ROOT, code_blocks, table

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.cli import commands

PAGE = DOCS / "scale.md"
SBATCH = ROOT / "examples" / "table.sbatch"
CLUSTER = ROOT / "examples" / "ray-cluster.yaml"
HFC_COMMAND = re.compile(r"(?<![\w/.-])hfc ((?:run|table) [^'\n|>]*)")


def told(*texts):
    """Every `hfc run` and `hfc table` of some texts, as words."""
    return [shlex.split(line) for text in texts for line in HFC_COMMAND.findall(text)]


TOLD = told(
    *(code for _, code in code_blocks(PAGE.read_text())), SBATCH.read_text(), CLUSTER.read_text()
)


@pytest.mark.parametrize("words", TOLD, ids=" ".join)
def test_every_command_exists_with_its_options(words):
    command, *arguments = words
    context = commands.get_command(None, command).make_context(command, arguments)
    values = context.params.get("overrides", {})
    override(recipe("cifar100-b0-t10-hfc@paper"), values)
    assert set(values) <= {
        "checkpoint-activations",
        "precision",
        "compile",
        "tf32",
        "channels-last",
    }


def test_the_page_tells_of_all_ways():
    words = [word for command in TOLD for word in command]
    assert {"--ranks", "--on", "--commands", "--no-run"} <= set(words)
    assert '--8<-- "examples/table.sbatch"' in PAGE.read_text()
    assert '--8<-- "examples/ray-cluster.yaml"' in PAGE.read_text()


@pytest.fixture
def lines(tmp_path):
    """The lines that the command of the sbatch file prints."""
    words, *_ = told(SBATCH.read_text())
    assert "--commands" in words
    words[words.index("--out") + 1] = str(tmp_path / "my runs")
    result = CliRunner().invoke(commands, words, catch_exceptions=False, standalone_mode=False)
    found = result.stdout.splitlines()
    assert len(found) > 10 and len(set(found)) == len(found)
    return found


def test_a_task_of_the_array_runs_the_command_of_its_line(tmp_path, lines):
    (tmp_path / "runs.txt").write_text("\n".join(lines) + "\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, script in {"srun": 'exec "$@"', "hfc": 'printf "%s\\n" "$@" > said.txt'}.items():
        (programs / name).write_text(f"#!/bin/bash\n{script}\n")
        (programs / name).chmod(0o755)

    def task(number):
        environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
        environment["SLURM_ARRAY_TASK_ID"] = str(number)
        subprocess.run(["bash", str(SBATCH)], cwd=tmp_path, env=environment, check=True)
        return (tmp_path / "said.txt").read_text().splitlines()

    for number in (1, len(lines)):
        assert ["hfc", *task(number)] == shlex.split(lines[number - 1])


def test_the_cluster_file_is_one_that_ray_reads():
    scripts = pytest.importorskip("ray.scripts.scripts")
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load(CLUSTER.read_text())
    validate_config(prepare_config(config))
    started = [
        shlex.split(line)
        for name in ("head_start_ray_commands", "worker_start_ray_commands")
        for line in config[name]
    ]
    assert [words[1] for words in started] == ["stop", "start"] * 2
    for program, command, *arguments in started:
        assert program == "ray"
        scripts.cli.commands[command].make_context(command, arguments)


# Costs

RESULTS = ROOT / "experiments" / "results"


def read(name):
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_of_measurements_is_the_committed_one():
    expected = [
        [
            row["row"],
            row["compared_with"],
            f"{float(row['ours']):.4g} {row['unit']}",
            f"{float(row['ratio']):.2f}",
            row["target"],
            "" if row["met"] == "True" else f"missed: {row['cause']}",
        ]
        for row in read("scale")
    ]
    assert table(PAGE, "| row | against | measured |") == expected
