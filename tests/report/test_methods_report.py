"""From the rows of the comparison to numbers over seeds and a markdown table."""

import math

import pandas as pd
import pytest

from avalanche_hfc.report.methods import differences, no_difference, per_run, summarise, table


def run(method, losses, seed, accuracies, average=None):
    """Rows of one run; `average` as the run has it, NaN where the strategy trains on the whole
    stream.
    """
    return [
        dict(
            method=method,
            losses=losses,
            seed=seed,
            step=step,
            classes=2 * step + 2,
            images=10,
            accuracy=value,
            accuracy_nme=math.nan,
            average=sum(accuracies[: step + 1]) / (step + 1) if average is None else average,
            forgetting=0.25 * step,
            fh=0.01 * (step + 1),
            seconds=1.5,
        )
        for step, value in enumerate(accuracies)
    ]


def rows():
    return pd.DataFrame(
        [
            *run("avalanche-joint", "host", 0, [0.9], average=math.nan),
            *run("icarl", "hfc", 0, [1.0, 0.8]),
            *run("icarl", "hfc", 1, [0.9, 0.5]),
            *run("icarl", "host", 1, [0.9, 0.3]),
            *run("icarl", "host", 0, [1.0, 0.7]),
            *run("hfc", "host", 0, [1.0, 0.6]),
        ]
    )


def cells(text, method):
    return [
        cell.strip()
        for cell in next(
            line for line in text.splitlines() if line.startswith(f"| `{method}` ")
        ).split("|")[1:-1]
    ]


def test_a_run_ends_with_its_last_step_whatever_the_order_of_the_rows():
    table = per_run(rows().iloc[::-1]).set_index(["method", "losses", "seed"])
    end = table.loc["icarl", "host", 1]
    assert end.to_dict() == pytest.approx(
        {"average": 0.6, "last": 0.3, "forgetting": 0.25, "fh": 0.015, "seconds": 3.0}
    )
    assert math.isnan(table.loc[("avalanche-joint", "host", 0), "average"])


def test_methods_stand_in_the_order_of_strategies_and_the_plain_form_first():
    assert summarise(rows())[["method", "losses"]].apply(tuple, axis=1).tolist() == [
        ("hfc", "host"),
        ("icarl", "host"),
        ("icarl", "hfc"),
        ("avalanche-joint", "host"),
    ]


def test_the_summary_is_mean_and_standard_deviation_over_seeds():
    summary = summarise(rows()).set_index(["method", "losses"])
    own = summary.loc["icarl", "host"]
    assert (own["average"], own["last"]) == pytest.approx((0.725, 0.5))
    assert own["average_std"] == pytest.approx(math.sqrt(2 * 0.125**2)) and own[
        "last_std"
    ] == pytest.approx(math.sqrt(2 * 0.2**2))
    assert own["num_seeds"] == 2 and own["seconds"] == 3.0
    assert math.isnan(summary.loc[("hfc", "host"), "last_std"])


def test_a_line_has_both_forms_and_the_difference_seed_by_seed():
    text = table(rows())
    assert cells(text, "icarl") == [
        "`icarl`",
        "72.5 ± 12.5",
        "50.0 ± 20.0",
        "80.0 ± 10.0",
        "65.0 ± 15.0",
        "+7.5 ± 2.5",
        "+15.0 ± 5.0",
    ]
    assert cells(text, "hfc") == ["`hfc`", "80.0", "60.0", "–", "–", "–", "–"]
    assert cells(text, "avalanche-joint") == ["`avalanche-joint`", "–", "90.0", "–", "–", "–", "–"]
    assert (
        "mean ± standard error over 1 or 2 seeds, one thread" in text
        and "On another kind of CPU" in text
    )
    assert "(none) is a Δ below two standard errors: no difference" in text


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
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return mean, math.sqrt(variance), math.sqrt(variance / len(values))


@pytest.mark.parametrize("method", ["icarl", "bic"])
def test_standard_errors_and_paired_differences_are_those_of_a_loop_over_seeds(method):
    ends = {}
    for row in five_seeds().to_dict("records"):
        ends.setdefault((row["method"], row["losses"]), {}).setdefault(row["seed"], []).append(
            row["accuracy"]
        )
    summary = summarise(five_seeds()).set_index(["method", "losses"])
    measures = {
        "average": lambda accuracies: sum(accuracies) / len(accuracies),
        "last": lambda accuracies: accuracies[-1],
    }
    for name, measure in measures.items():
        forms = {
            losses: {seed: measure(accuracies) for seed, accuracies in ends[method, losses].items()}
            for losses in ("host", "hfc")
        }
        for losses, seeds in forms.items():
            own = summary.loc[method, losses]
            assert (own[name], own[f"{name}_std"], own[f"{name}_se"]) == pytest.approx(
                spread(list(seeds.values()))
            )
            assert own["num_seeds"] == len(seeds)
        mean, _, error = spread([forms["hfc"][seed] - forms["host"][seed] for seed in (0, 1, 2, 3)])
        own = summary.loc[method, "hfc"]
        assert (own[f"delta_{name}"], own[f"delta_{name}_se"]) == pytest.approx(
            (mean, error)
        ) and own["delta_seeds"] == 4
        assert math.isnan(summary.loc[(method, "host"), f"delta_{name}"])


def with_difference(in_errors):
    """Rows of `icarl` whose losses add this many standard errors to the last accuracy: differences
    d-0.01, d, d+0.01.
    """
    error = 0.01 / math.sqrt(3)
    seeds = [(seed, 0.5 + in_errors * error + 0.01 * (seed - 1)) for seed in range(3)]
    return pd.DataFrame(
        [
            row
            for seed, value in seeds
            for row in (*run("icarl", "host", seed, [0.5]), *run("icarl", "hfc", seed, [value]))
        ]
    )


@pytest.mark.parametrize(
    ("in_errors", "said"),
    [
        (1.9, "+1.1 ± 0.6 (none)"),
        (2.1, "+1.2 ± 0.6"),
        (-1.9, "-1.1 ± 0.6 (none)"),
        (-2.1, "-1.2 ± 0.6"),
    ],
)
def test_a_difference_below_two_standard_errors_is_called_none(in_errors, said):
    assert cells(table(with_difference(in_errors)), "icarl")[6] == said


def test_no_difference_is_said_of_zero_and_of_one_seed_nothing():
    assert no_difference(0.0, 0.0) and not no_difference(0.1, 0.0)
    assert not no_difference(0.1, math.nan) and not no_difference(2.0, 1.0)


def test_differences_are_of_runs_whose_plain_form_is_there():
    found = differences(per_run(five_seeds().query("not (losses == 'host' and seed == 2)")))
    assert found[found["method"] == "icarl"]["seed"].tolist() == [0, 1, 3]


def test_a_difference_is_over_the_seeds_that_both_forms_have():
    some = rows().query("not (losses == 'hfc' and seed == 1)")
    assert cells(table(some), "icarl")[3:] == ["90.0", "80.0", "+5.0", "+10.0"]
    others = rows().query("(losses == 'hfc' and seed == 1) or (losses == 'host' and seed == 0)")
    assert cells(table(others), "icarl")[5:] == ["–", "–"]


def test_rows_of_a_method_that_does_not_exist_are_refused():
    with pytest.raises(ValueError, match="Unknown method 'icrl'.*Did you mean 'icarl'"):
        summarise(rows().replace("icarl", "icrl"))
