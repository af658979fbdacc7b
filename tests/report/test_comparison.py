"""The table of all methods: numbers over seeds, differences seed by seed, and a line per method."""

import math

import pandas as pd
import pytest

from avalanche_hfc.lab import FURTHER_TABLES
from avalanche_hfc.report.tables import comparison_grid, markdown, table_of

CELLS = FURTHER_TABLES["methods"]["demo"]
RECIPES = {(cell.row, cell.losses): name for cell, name in CELLS}


def run(method, losses, seed, accuracies):
    """Rows of one run."""
    return [
        dict(
            recipe=RECIPES[method, losses],
            seed=seed,
            step=step,
            classes=2 * step + 2,
            accuracy=value,
            average=sum(accuracies[: step + 1]) / (step + 1),
            forgetting=0.25 * step,
            fh=0.01 * (step + 1),
            seconds=1.5,
        )
        for step, value in enumerate(accuracies)
    ]


def rows():
    return pd.DataFrame(
        [
            *run("avalanche-joint", "host", 0, [0.9]),
            *run("icarl", "hfc", 0, [1.0, 0.8]),
            *run("icarl", "hfc", 1, [0.9, 0.5]),
            *run("icarl", "host", 1, [0.9, 0.3]),
            *run("icarl", "host", 0, [1.0, 0.7]),
            *run("hfc", "host", 0, [1.0, 0.6]),
        ]
    )


def table(steps):
    return table_of("methods", "demo", CELLS, steps)


def number(numbers, method, losses, column):
    found = numbers[
        (numbers["row"] == method) & (numbers["losses"] == losses) & (numbers["column"] == column)
    ]
    assert len(found) == 1
    return found.iloc[0]


def cells(text, method):
    line = next(line for line in text.splitlines() if line.startswith(f"| `{method}` "))
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_a_line_has_both_forms_and_the_difference_seed_by_seed():
    text = markdown(comparison_grid(table(rows())))
    assert cells(text, "icarl") == [
        "`icarl`",
        "72.5 ± 12.5",
        "50.0 ± 20.0",
        "80.0 ± 10.0",
        "65.0 ± 15.0",
        "+7.5 ± 2.5 (none)",
        "+15.0 ± 5.0 (none)",
    ]
    assert cells(text, "hfc") == ["`hfc`", "80.0", "60.0", "–", "–", "–", "–"]
    assert cells(text, "avalanche-joint") == ["`avalanche-joint`", "–", "90.0", "–", "–", "–", "–"]
    assert "over 1 or 2 seeds, one thread" in text and "On another kind of CPU" in text
    assert "(none): no difference found by a paired t-test at the 5 % level" in text


def test_lines_are_in_the_order_of_the_methods_and_say_why_one_cannot_run():
    text = markdown(comparison_grid(table(rows())))
    named = [line.split("`")[1] for line in text.splitlines() if line.startswith("| `")]
    assert named == ["hfc", "icarl", "avalanche-der", "avalanche-bic", "avalanche-joint"]
    assert cells(text, "avalanche-der") == ["`avalanche-der`", "cannot run", *["–"] * 5]
    assert "\n\n`avalanche-bic` cannot run. Its correction after the second step" in text


def five_seeds():
    """Last accuracies of two methods in both forms; seeds in another order in each, one of a form
    missing.
    """
    plain = {0: 0.50, 1: 0.61, 2: 0.42, 3: 0.55, 4: 0.48}
    with_losses = {3: 0.58, 0: 0.57, 2: 0.40, 1: 0.66}
    return pd.DataFrame(
        [
            row
            for method, shift in (("icarl", 0.0), ("bic", 0.1))
            for losses, seeds in (("hfc", with_losses), ("host", plain))
            for seed, value in seeds.items()
            for row in run(
                method, losses, seed, [0.9 - shift * seed, value + shift * (losses == "hfc")]
            )
        ]
    )


def spread(values):
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


@pytest.mark.parametrize("method", ["icarl", "bic"])
def test_means_and_paired_differences_are_those_of_a_loop_over_seeds(method):
    ends = {}
    for row in five_seeds().to_dict("records"):
        ends.setdefault((row["recipe"], row["seed"]), []).append(100 * row["accuracy"])
    numbers = table(five_seeds())
    measures = {
        "average": lambda accuracies: sum(accuracies) / len(accuracies),
        "last": lambda accuracies: accuracies[-1],
    }
    for name, measure in measures.items():
        forms = {
            losses: {
                seed: measure(accuracies)
                for (recipe, seed), accuracies in ends.items()
                if recipe == RECIPES[method, losses]
            }
            for losses in ("host", "hfc")
        }
        for losses, seeds in forms.items():
            found = number(numbers, method, losses, name)
            assert (found["ours"], found["std"]) == pytest.approx(spread(list(seeds.values())))
            assert found["num_seeds"] == len(seeds)
        found = number(numbers, method, "host", f"Δ {name}")
        differences = [forms["hfc"][seed] - forms["host"][seed] for seed in (0, 1, 2, 3)]
        assert (found["ours"], found["std"]) == pytest.approx(spread(differences))
        assert found["num_seeds"] == 4


@pytest.mark.parametrize(
    ("in_errors", "said"),
    [
        (4.2, "+2.4 ± 0.6 (none)"),  # of three seeds, 4.30 are needed
        (4.4, "+2.5 ± 0.6"),
        (-4.2, "-2.4 ± 0.6 (none)"),
        (-4.4, "-2.5 ± 0.6"),
    ],
)
def test_a_difference_that_the_test_does_not_find_is_called_none(in_errors, said):
    error = 0.01 / math.sqrt(3)  # of the differences d-0.01, d, d+0.01
    seeds = [(seed, 0.5 + in_errors * error + 0.01 * (seed - 1)) for seed in range(3)]
    steps = [
        row
        for seed, value in seeds
        for row in (*run("icarl", "host", seed, [0.5]), *run("icarl", "hfc", seed, [value]))
    ]
    assert cells(markdown(comparison_grid(table(pd.DataFrame(steps)))), "icarl")[6] == said
