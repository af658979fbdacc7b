"""What the README claims of committed results is in the committed files."""

from pathlib import Path

import pandas as pd

from avalanche_hfc.recipes import DEMO_METHODS
from avalanche_hfc.report.demo import summarise

RESULTS = Path(__file__).parents[1] / "experiments" / "results"


def test_hfc_ends_above_avalanches_replay_and_naive_on_digits_over_five_seeds():
    rows = pd.read_csv(RESULTS / "demo" / "steps.csv")
    assert len(rows) == 5 * len(DEMO_METHODS) * 5
    mean = summarise(rows).groupby("method")[["average", "last"]].mean()
    for other in ("avalanche-replay", "avalanche-naive", "herding-replay"):
        assert (mean.loc["hfc"] > mean.loc[other]).all(), other


def test_the_committed_summary_follows_from_the_committed_rows():
    rows, summary = pd.read_csv(RESULTS / "demo" / "steps.csv"), pd.read_csv(RESULTS / "demo" / "summary.csv")
    pd.testing.assert_frame_equal(summarise(rows), summary)
