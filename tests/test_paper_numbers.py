"""`experiments/paper.csv` holds what the paper prints, and its marks name what the printed numbers
do not agree on.

What a number is (`column`): `average` the average incremental accuracy of `num_steps`, `mean` the
mean of a row's averages over them, `step k` the accuracy after the k-th step, `last` the final
accuracy (of joint training, printed under averages), `improvement` by how much HFC leads the row,
or the same method with HFC's losses. `mem_size` counts all exemplars; where it is empty,
`per_class` those of a class.
"""

import hashlib
from pathlib import Path

import pandas as pd
import pytest

from avalanche_hfc.lab.options import METHODS

ROOT = Path(__file__).parents[1]
NUMBERS = pd.read_csv(ROOT / "experiments" / "paper.csv")
TABLES = pd.read_csv(ROOT / "experiments" / "paper_tables.csv").set_index("table")
SETTING = [
    "row",
    "losses",
    "backbone",
    "dataset",
    "base_fraction",
    "num_steps",
    "mem_size",
    "per_class",
    "column",
]
SHA256 = {  # of the files that were compared with the paper's LaTeX, number by number
    "paper.csv": "f409ef851dc28b22b6f069c0de48807dcd12ebba22b065f4b206d1553aad96b2",
    "paper_tables.csv": "c9d7985f9a4c362db5062f332f0f3f737638b881ee14666495f40bae024a4762",
}
TOLERANCE = 0.05 + 1e-9  # half a unit of the last printed digit


def test_the_ten_tables_are_all_there():
    assert list(TABLES["number"]) == list(range(1, 11))
    assert list(NUMBERS["table"].unique()) == list(TABLES.index)
    assert len(NUMBERS) == 1133


def test_rows_are_known_methods_or_a_baseline_with_parts():
    for row in NUMBERS["row"].unique():
        method, *parts = row.split("+")
        assert method in METHODS and parts in ([], ["tsa"], ["tsa", "gfc"]), row
        assert not parts or method == "baseline"


def recomputed_averages():
    """The rows that print a mean, with the mean of the numbers below it as `recomputed`."""
    over_steps = ["table", *SETTING[:-1]]
    over_num_steps = [key for key in over_steps if key != "num_steps"]
    of_steps, of_num_steps = (
        NUMBERS["column"].str.startswith("step "),
        NUMBERS["column"].isin(["average", "last"]),
    )
    for target, parts, keys in (
        ("average", of_steps, over_steps),
        ("mean", of_num_steps, over_num_steps),
    ):
        means = NUMBERS[parts].groupby(keys, dropna=False)["value"].mean().rename("recomputed")
        yield NUMBERS[NUMBERS["column"] == target].merge(means.reset_index(), on=keys)


def test_every_printed_average_is_the_mean_of_its_numbers_or_carries_a_mark():
    averages = pd.concat(recomputed_averages())
    assert len(averages) == 142
    wrong = averages[(averages["value"] - averages["recomputed"]).abs() > TOLERANCE].set_index(
        "row"
    )
    assert wrong["table"].to_dict() == dict.fromkeys(
        ["foster", "dytox", "hfc"], "steps-imagenet100"
    )
    for row in wrong.itertuples():
        assert row.mark == f"the ten printed steps have mean {row.recomputed:.2f}"


def test_every_printed_improvement_is_the_lead_of_hfc_or_carries_a_mark():
    level = (NUMBERS["column"] == "mean") | (
        NUMBERS["table"].str.startswith("steps-") & (NUMBERS["column"] == "average")
    )
    keys = ["table", "backbone", "base_fraction"]
    levels = NUMBERS.loc[level, [*keys, "row", "losses", "value"]]
    lead = NUMBERS[NUMBERS["column"] == "improvement"].merge(
        levels[levels["losses"] == "host"], on=[*keys, "row"], suffixes=("", "_host")
    )
    with_losses = (
        levels[levels["losses"] == "hfc"]
        .rename(columns={"value": "of_losses"})
        .drop(columns="losses")
    )
    of_hfc = (
        levels[levels["row"] == "hfc"]
        .rename(columns={"value": "of_hfc"})
        .drop(columns=["row", "losses"])
    )
    lead = lead.merge(with_losses, on=[*keys, "row"], how="left").merge(of_hfc, on=keys, how="left")
    assert len(lead) == 77 and (lead["of_losses"].isna() != lead["of_hfc"].isna()).all()
    expected = (lead["of_losses"].fillna(lead["of_hfc"]) - lead["value_host"]).round(1)
    wrong = (expected - lead["value"]).abs() > 1e-9
    assert wrong.sum() == 10
    assert list(lead.loc[wrong, "mark"]) == [
        f"{value} from the printed averages" for value in expected[wrong]
    ]


def test_a_setting_printed_in_two_tables_has_one_value_or_marks():
    runs = NUMBERS[NUMBERS["column"].isin(["average", "last"])]
    differing = [
        group for _, group in runs.groupby(SETTING, dropna=False) if group["value"].nunique() > 1
    ]
    assert all(group["table"].is_unique for group in differing)
    assert {(group["row"].iloc[0], group["dataset"].iloc[0]) for group in differing} == {
        ("foster", "cifar100"),
        ("hfc", "imagenet100"),
    }
    for group in differing:
        assert group["mark"].notna().any(), group


@pytest.mark.parametrize("name", SHA256)
def test_the_numbers_are_those_that_were_compared_with_the_paper(name):
    content = (ROOT / "experiments" / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == SHA256[name]
