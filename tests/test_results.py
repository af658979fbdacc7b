"""What the README claims of committed results is in the committed files."""

import csv
import re
import statistics
import tomllib
from pathlib import Path

import pandas as pd
from mutations import mutations

from avalanche_hfc.recipes import DEMO_METHODS
from avalanche_hfc.report.demo import summary_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"
README = (ROOT / "README.md").read_text()
BENCH = list(csv.DictReader((RESULTS / "bench.csv").open(newline="")))
STEP = "training step of "  # how the rows of the second speed table begin
WITH_LOSSES = ", with both losses"
DEMO = {  # the first table's names
    "HFC": "hfc",
    "herding replay with cross-entropy": "herding-replay",
    "Avalanche's Replay": "avalanche-replay",
    "Avalanche's Naive": "avalanche-naive",
}


def tables(text):
    """{heading: cells of the lines below} of every markdown table."""
    found = {}
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, flags=re.MULTILINE):
        heading, _, *lines = block.strip().splitlines()
        found[heading] = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
        ]
    return found


def table(start):
    """The lines of the README's table whose heading begins so."""
    found = [lines for heading, lines in tables(README).items() if heading.startswith(start)]
    assert len(found) == 1
    return found[0]


def test_hfc_ends_above_avalanches_replay_and_naive_on_digits_over_five_seeds():
    rows = pd.read_csv(RESULTS / "demo" / "steps.csv")
    assert len(rows) == 5 * len(DEMO_METHODS) * 5
    mean = summary_of(rows).groupby("method")[["average", "last"]].mean()
    for other in ("avalanche-replay", "avalanche-naive", "herding-replay"):
        assert (mean.loc["hfc"] > mean.loc[other]).all(), other


def test_the_committed_summary_follows_from_the_committed_rows():
    rows, summary = (
        pd.read_csv(RESULTS / "demo" / "steps.csv"),
        pd.read_csv(RESULTS / "demo" / "summary.csv"),
    )
    pd.testing.assert_frame_equal(summary_of(rows), summary)


def test_the_demonstrations_table_in_the_readme_is_the_committed_summary():
    def cell(runs, column, factor):
        values = [factor * float(run[column]) for run in runs]
        return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"

    with (RESULTS / "demo" / "summary.csv").open(newline="") as file:
        summary = list(csv.DictReader(file))
    expected = []
    for name, method in DEMO.items():
        runs = [row for row in summary if row["method"] == method]
        expected.append(
            [name, cell(runs, "average", 100), cell(runs, "last", 100), cell(runs, "fh", 1000)]
        )
    shown = [
        [cell.replace("**", "") for cell in line]
        for line in table("| | average % | last % | FH × 1000 |")
    ]
    assert shown == expected


def test_the_speed_table_in_the_readme_is_the_committed_one():
    expected = []
    for row in BENCH:
        if not row["row"].startswith(STEP):
            said = "" if row["met"] == "True" else f"missed: {row['cause']}"
            expected.append(
                [
                    row["row"],
                    row["compared_with"],
                    f"{float(row['ratio']):.2f}",
                    row["target"],
                    said,
                ]
            )
    assert table("| row | against | ratio |") == expected


def test_the_table_of_training_steps_in_the_readme_is_the_committed_one():
    steps = {
        row["row"].removeprefix(STEP): [
            f"{float(row[name]):.2f}" for name in ("ours", "reference", "ratio")
        ]
        for row in BENCH
    }
    names = [
        row["row"].removeprefix(STEP)
        for row in BENCH
        if row["row"].startswith(STEP) and not row["row"].endswith(WITH_LOSSES)
    ]
    expected = [
        [f"`{name}`", *steps[name], *steps.get(name + WITH_LOSSES, ["–"] * 3)] for name in names
    ]
    assert table("| method | one step × fine-tuning |") == expected


def test_the_readme_has_no_table_of_numbers_but_those_read_back():
    """The table of methods is compared in test_methods_results.py; the other tables with a number
    in them tell the paper's, or none.
    """
    read_back = (
        "| | average % |",
        "| row | against |",
        "| method | one step ×",
        "| method | average | last |",
    )
    told = ("| `STRATEGIES` | paper |", "| part | paper | here |")  # formulas and settings
    with_numbers = [
        heading for heading, lines in tables(README).items() if re.search(r"\d\.\d", str(lines))
    ]
    assert sorted(heading for heading in with_numbers if not heading.startswith(told)) == sorted(
        heading for heading in tables(README) if heading.startswith(read_back)
    )
    assert len([heading for heading in with_numbers if heading.startswith(read_back)]) == 4


def test_every_file_of_formulas_has_been_through_all_its_mutants_and_none_is_left_unexplained():
    with (RESULTS / "mutants.csv").open(newline="") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    package = ROOT / "avalanche_hfc"
    files = [
        path
        for layer in ("losses", "memory", "metrics")
        for path in (package / layer).glob("*.py")
        if path.name != "__init__.py"
    ]
    assert sorted(rows) == sorted(path.relative_to(package).as_posix() for path in files)
    assert {
        name: row
        for name, row in rows.items()
        if int(row["killed"]) + int(row["equivalent"]) != int(row["mutants"])
    } == {}
    listed = [
        entry["file"]
        for entry in tomllib.loads((ROOT / "tests" / "mutants.toml").read_text())["equivalent"]
    ]
    assert {name: int(row["equivalent"]) for name, row in rows.items()} == {
        name: listed.count(name) for name in rows
    }
    now = {name: len(mutations(name, (package / name).read_bytes())) for name in rows}
    assert {
        name: int(row["mutants"]) for name, row in rows.items()
    } == now  # a file that has changed goes through `make mutate` again
