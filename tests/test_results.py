"""What the pages claim of committed results is in the committed files."""

import csv
import re
import statistics
from pathlib import Path

import pandas as pd
from pages import DOCS, GENERATED, PAGES, name_of, table, tables

from avalanche_hfc.lab import DEMO_METHODS
from avalanche_hfc.report.tables import demo_summary

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"
SPEED = DOCS / "speed.md"
RESULTS_PAGE = DOCS / "results.md"
BENCH = list(csv.DictReader((RESULTS / "bench.csv").open(newline="")))
STEP = "training step of "  # how the rows of the second speed table begin
WITH_LOSSES = ", with both losses"
DEMO = {  # the first table's names
    "HFC": "hfc",
    "herding replay with cross-entropy": "herding-replay",
    "Avalanche's Replay": "avalanche-replay",
    "Avalanche's Naive": "avalanche-naive",
}


def test_hfc_ends_above_avalanches_replay_and_naive_on_digits_over_five_seeds():
    rows = pd.read_csv(RESULTS / "demo" / "steps.csv")
    assert len(rows) == 5 * len(DEMO_METHODS) * 5
    mean = demo_summary(rows).groupby("method")[["average", "last"]].mean()
    for other in ("avalanche-replay", "avalanche-naive", "herding-replay"):
        assert (mean.loc["hfc"] > mean.loc[other]).all(), other


def test_the_demonstrations_table_is_the_committed_summary():
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
        for line in table(RESULTS_PAGE, "| | average % | last % | FH × 1000 |")
    ]
    assert shown == expected


def test_the_speed_table_is_the_committed_one():
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
    assert table(SPEED, "| row | against | ratio |") == expected


def test_the_table_of_training_steps_is_the_committed_one():
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
    assert table(SPEED, "| method | one step × fine-tuning |") == expected


def test_no_page_has_a_table_of_numbers_but_those_read_back():
    """The table of methods is compared in test_methods_results.py, those of docs/fidelity.md in
    test_fidelity.py, those of real images in test_real_images.py; the other tables with a number in
    them tell formulas and settings.
    """
    read_back = {
        ("docs/results.md", "| | average % |"),
        ("docs/results.md", "| method | average | last |"),
        ("docs/speed.md", "| row | against |"),
        ("docs/speed.md", "| method | one step ×"),
        ("docs/scale.md", "| row | against |"),  # compared in test_scale.py
        ("docs/protocol.md", "| command | found |"),  # compared in test_real_images.py
    }
    settings = {
        ("docs/methods.md", "| `STRATEGIES` | paper |"),
        ("docs/getting-started.md", "| part | paper | here |"),
        ("docs/versions.md", "| package | lowest |"),  # compared in test_setup.py
    }
    with_numbers = {
        (name_of(page), heading)
        for page in PAGES
        if page.name != "fidelity.md"
        for heading, lines in tables(GENERATED.sub("", page.read_text())).items()
        if re.search(r"\d\.\d", str(lines))
    }
    known = read_back | settings
    assert len(with_numbers) == len(known)
    for page, heading in with_numbers:
        assert [start for name, start in known if name == page and heading.startswith(start)]
