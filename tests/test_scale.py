"""The page on scale: its files to copy work, its commands exist, its costs follow from the committed
rows of the bench.
"""

import csv
import os
import re
import shlex
import subprocess
import tracemalloc

import pytest
import torch
import yaml
from click.testing import CliRunner
from pages import DOCS, ROOT, code_blocks, table
from torch.utils.data import TensorDataset

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.cli import commands
from avalanche_hfc.lab.record import class_rows, confusion_rows, counts_of
from avalanche_hfc.lab.run_folder import RunFolder, RunRows
from avalanche_hfc.memory.herding import MOST_BYTES
from avalanche_hfc.metrics import evaluate
from avalanche_hfc.metrics.evaluation import count

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
ROOM = 16e9  # bytes, of the table of what breaks
WIDTH = 768
RUNS = {  # name -> training images, classes, exemplars, test images of a class; in ten steps
    "ImageNet-1000": (1_281_167, 1000, 20_000, 50),
    "10⁵ classes, 10⁸ images": (100_000_000, 100_000, 2_000_000, 50),
}
STEPS = 10


def read(name):
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def value(rows, start, column="ours"):
    """Of the first row whose name begins so."""
    return next(float(row[column]) for row in rows if row["row"].startswith(start))


@pytest.fixture(scope="module")
def slopes():
    """Seconds, and bytes, for one of each."""
    scale, bench = read("scale"), read("bench")
    head = value(scale, "time: head, step of AdamW")
    losses = value(scale, "both losses, forward + backward")
    return {
        "train": value(scale, "CPU time of a rank: HFC training", "reference") / 1e3,
        "forward": value(bench, "evaluation after a step") / 1e3 / 960,
        "class": (head + losses) / 1e3 / 256 / 1e5,
        "herding": value(scale, "time: herding of one class") / 1e3 / 1e5,
        "new class": (
            value(scale, "time: head that grows") + value(scale, "time: exemplars of C classes")
        ) / 1e3 / 1e5,
        "rank": value(scale, "HFC training on 2 gloo ranks", "ratio"),
        "gathering": value(scale, "gathering on 2 ranks") / 1e3 / 64 / 1000,
        "report": value(scale, "time: report") / 1e3 / 1e4,
        "step": (
            value(scale, "CPU time of a run of 5 steps")
            - value(scale, "CPU time of a run of 5 steps", "reference")
        ) / 1e3 / (5 - 1),
        "head bytes": value(scale, "memory: head, step of AdamW") * 2**20 / 1e5,
        "loss bytes": value(scale, "memory: both losses") * 2**20 / 1e5,
        "report bytes": value(scale, "memory: report") * 2**20 / 1e4,
    }  # fmt: skip


def short(number):
    """Two digits, without a decimal point."""
    exponent = len(str(round(number))) - 2
    return f"{round(number, -max(exponent, 0)):,.0f}"


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


def test_the_slopes_are_those_of_the_committed_rows(slopes):
    expected = [
        ["a", "an image trained once, with the teacher", f"{1e6 * slopes['train']:.0f} µs"],
        ["f", "an image evaluated or herded: forward pass", f"{1e6 * slopes['forward']:.0f} µs"],
        ["c", "a class of the head, for an image trained", f"{1e9 * slopes['class']:.0f} ns"],
        ["h", "an image herded: choice of 20", f"{1e6 * slopes['herding']:.0f} µs"],
        ["g", "a new class: head and memory", f"{1e6 * slopes['new class']:.0f} µs"],
        ["p", "a class in the report", f"{1e6 * slopes['report']:.0f} µs"],
        ["r", "gathering, for an image and a class", f"{1e9 * slopes['gathering']:.0f} ns"],
        ["d", "a step: teacher, memory, loaders, rows and checkpoint",
         f"{1e3 * slopes['step']:.0f} ms"],
    ]  # fmt: skip
    assert table(PAGE, "| | of | seconds |") == expected


def test_the_formula_has_every_slope_and_the_efficiency_of_two_ranks(slopes):
    page = PAGE.read_text()
    (formula,) = re.findall(r"^Σ<sub>.*$", page, re.MULTILINE)
    names = {name for name, *_ in table(PAGE, "| | of | seconds |")}
    assert names - {"r"} <= set(re.findall(r"\b[a-z]\b", formula)) and "+ S · d" in formula
    assert f"efficiency e = {slopes['rank'] / 2:.2f} that training on two ranks has" in page
    assert "each image adds r · C" in page


def test_the_costs_of_the_two_runs_follow_from_the_slopes(slopes):
    expected = []
    for name, (images, classes, exemplars, tests) in RUNS.items():
        trained = images + (STEPS - 1) * exemplars
        mean_classes = classes * (STEPS + 1) / 2 / STEPS
        evaluated = tests * classes * (STEPS + 1) / 2
        seconds = (
            trained * slopes["train"],
            trained * mean_classes * slopes["class"],
            images * (slopes["forward"] + slopes["herding"]) + classes * slopes["new class"],
            evaluated * slopes["forward"],
        )
        expected.append([name, *(f"{short(part / 60)} min" for part in seconds)])
    assert table(PAGE, "| run | model, for each epoch |") == expected
    equal = short(slopes["train"] / slopes["class"])
    assert f"as much as this small model at about {equal} classes" in PAGE.read_text()


@pytest.fixture(scope="module")
def bytes_of_a_line(tmp_path_factory):
    """Memory that a line of confusion.csv takes when it is read back, in hundreds of bytes."""
    targets = torch.arange(2000) % 100
    counts = count(targets, targets.flip(0) // 7, torch.zeros(2000), 100)
    rows = RunRows(RunFolder(tmp_path_factory.mktemp("rows")))
    names = [str(k) for k in range(100)]
    rows.add("classes", class_rows(0, counts, torch.zeros(100, dtype=torch.int64), names))
    rows.add("confusion", (row for _ in range(20) for row in confusion_rows(0, counts)))
    tracemalloc.start()
    counts_of(rows, 100)
    each = tracemalloc.get_traced_memory()[1] / rows.counts["confusion"]
    tracemalloc.stop()
    return round(each / 100) * 100


def copies_of_prototypes(monkeypatch):
    """How many times the class means are held at once as an evaluation with them begins."""
    monkeypatch.syspath_prepend(str(ROOT))
    from experiments.benches.hardware import LiveBytes

    class Embedding(torch.nn.Linear):
        def embed(self, x):
            return x

        def classify(self, x):
            return self(x)

    steps = torch.zeros(500, dtype=torch.int64)
    data = TensorDataset(torch.zeros(1, WIDTH), torch.zeros(1, dtype=torch.int64))
    model = Embedding(WIDTH, 500)
    with LiveBytes(list(model.parameters())) as counted:
        means = {class_id: torch.ones(WIDTH) for class_id in range(500)}
        evaluate(model, data, steps=steps, class_means=means)
    return counted.peak // (4 * WIDTH * 500)


def test_what_breaks_first_follows_from_the_slopes(slopes, bytes_of_a_line, monkeypatch):
    def per_class(num_bytes):
        return f"{short(num_bytes / 1000)} kB · C", f"C = {short(ROOM / num_bytes)}"

    nothing = torch.zeros(1, dtype=torch.int64)
    counts = count(nothing, nothing, torch.zeros(1), 1, nothing)  # of one image of one class
    cell = counts.cells.indices().nbytes + counts.cells.values().nbytes
    others = (
        counts.correct_nme, counts.total, counts.gradient_sum, counts.gradient_square_sum
    )  # fmt: skip
    columns = sum(column.nbytes for column in others)
    tests = RUNS["ImageNet-1000"][-1]
    lines = tests * (STEPS + 1) // 2  # of a class, in all steps
    copies = copies_of_prototypes(monkeypatch)
    expected = [
        ("9 · b²", f"b = {short((ROOM / 9) ** 0.5)}"),
        per_class(slopes["report bytes"]),
        (
            f"at most {bytes_of_a_line} · {lines} · C",
            f"C = {short(ROOM / bytes_of_a_line / lines)}",
        ),
        per_class(slopes["head bytes"] + 4 * WIDTH),  # the teacher's weights
        (
            f"at most ({cell} · {tests} + {columns}) · C each",
            f"C = {short(ROOM / STEPS / (cell * tests + columns))}",
        ),
        per_class(slopes["loss bytes"]),
        (f"{copies} · 4 · {WIDTH} · C", f"C = {short(ROOM / copies / 4 / WIDTH)}"),
        (f"8 · {WIDTH} · n", f"n = {short(ROOM / 8 / WIDTH)}"),
        (f"4 · {WIDTH} · n", f"n = {short(ROOM / 4 / WIDTH)}"),
    ]
    found = [tuple(line[1:]) for line in table(PAGE, "| what | bytes | 16 GB at |")]
    assert found == expected
    report = round(1e5 * slopes["report bytes"] / 1e9)
    measured = next(row for row in read("scale") if row["row"].startswith("memory: report"))
    smaller, larger = (measured[name].split(" = ")[1] for name in ("compared_with", "row"))
    label = f"extrapolated from the rows at {smaller} and {int(larger):,} classes"
    assert (
        f"the report on it does not: on five steps it needs {report} GB, {label}"
        in PAGE.read_text()
    )
    assert f"| report on five steps, extrapolated from C = {int(larger):,} |" in PAGE.read_text()
    images = round((MOST_BYTES / 8) ** 0.5)
    herding = (
        f"at most {MOST_BYTES >> 20} MB of inner products of the images of a class; of more than"
    )
    assert f"{herding} {images} images" in PAGE.read_text()


def test_rows_read_back_take_the_memory_that_the_page_says(bytes_of_a_line):
    _, classes, _, tests = RUNS["10⁵ classes, 10⁸ images"]
    told = bytes_of_a_line
    lines = tests * classes * (STEPS + 1) / 2
    assert f"about {told} bytes of memory for each line of `confusion.csv`, up to " in (
        page := PAGE.read_text()
    )
    assert f"up to {told * lines / 1e9:.0f} GB for 10⁵ classes in ten steps" in page
