"""From the rows of the comparison to numbers over seeds and a markdown table."""

import math

import pandas as pd
import pytest

from avalanche_hfc.report.methods import per_run, summarise, table


def run(method, losses, seed, accuracies, average=None):
    """Rows of one run; `average` as the run has it, NaN where the strategy trains on the whole stream."""
    return [
        dict(method=method, losses=losses, seed=seed, step=step, classes=2 * step + 2, images=10, accuracy=value, accuracy_nme=math.nan,
             average=sum(accuracies[: step + 1]) / (step + 1) if average is None else average, forgetting=0.25 * step,
             fh=0.01 * (step + 1), seconds=1.5)
        for step, value in enumerate(accuracies)
    ]  # fmt: skip


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
    return [cell.strip() for cell in next(line for line in text.splitlines() if line.startswith(f"| `{method}` ")).split("|")[1:-1]]


def test_a_run_ends_with_its_last_step_whatever_the_order_of_the_rows():
    table = per_run(rows().iloc[::-1]).set_index(["method", "losses", "seed"])
    end = table.loc["icarl", "host", 1]
    assert end.to_dict() == pytest.approx({"average": 0.6, "last": 0.3, "forgetting": 0.25, "fh": 0.015, "seconds": 3.0})
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
    assert own["average_std"] == pytest.approx(math.sqrt(2 * 0.125**2)) and own["last_std"] == pytest.approx(math.sqrt(2 * 0.2**2))
    assert own["num_seeds"] == 2 and own["seconds"] == 3.0
    assert math.isnan(summary.loc[("hfc", "host"), "last_std"])


def test_a_line_has_both_forms_and_the_difference_seed_by_seed():
    text = table(rows())
    assert cells(text, "icarl") == ["`icarl`", "72.5 ± 17.7", "50.0 ± 28.3", "80.0 ± 14.1", "65.0 ± 21.2", "+7.5 ± 3.5", "+15.0 ± 7.1"]
    assert cells(text, "hfc") == ["`hfc`", "80.0", "60.0", "–", "–", "–", "–"]
    assert cells(text, "avalanche-joint") == ["`avalanche-joint`", "–", "90.0", "–", "–", "–", "–"]
    assert "1 or 2 seeds" in text


def test_a_difference_is_over_the_seeds_that_both_forms_have():
    some = rows().query("not (losses == 'hfc' and seed == 1)")
    assert cells(table(some), "icarl")[3:] == ["90.0", "80.0", "+5.0", "+10.0"]
    others = rows().query("(losses == 'hfc' and seed == 1) or (losses == 'host' and seed == 0)")
    assert cells(table(others), "icarl")[5:] == ["–", "–"]


def test_rows_of_a_method_that_does_not_exist_are_refused():
    with pytest.raises(ValueError, match="Unknown method 'icrl'.*Did you mean 'icarl'"):
        summarise(rows().replace("icarl", "icrl"))
