"""One rank in float32 gives bitwise the rows that it gave before: three runs on digits are compared
with their rows in one_rank.json. On a processor, or with versions, that this file does not know,
they are compared up to rounding.
"""

import json
from pathlib import Path

import pytest

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.run_folder import TIMES, RunFolder
from avalanche_hfc.lab.table import TableRun, train

HELD = Path(__file__).with_name("one_rank.json")
RUNS = ("digits-b0-t5-hfc@demo", "digits-b0-t5-icarl+hfc@demo", "digits-b0-t5-podnet@demo")
EPOCHS = "2"
SAME = ("step", "classes", "images")  # columns in which no rounding shows
APART = 2  # predictions that rounding may change; between the entries of the file it changes none
FH_APART = 1e-3  # relative; between the entries of the file it is 3e-5 at most


def trained(name, folder):
    """The versions and the machine of a run, its steps without times, and the checksum of the
    weights after each epoch.
    """
    run = TableRun(override(recipe(name), {"epochs": EPOCHS}), 0, folder)
    train(run)
    rows = RunFolder(folder)
    note = rows.metadata()
    versions = {k: v for k, v in note["versions"].items() if k != "avalanche_hfc"}
    return (versions, note["machine"]), {
        "steps": [
            {column: value for column, value in row.items() if column not in TIMES}
            for row in rows.read("steps")
        ],
        "weights": [row["digest"] for row in rows.read("train")],
    }


def known(entries, versions, machine):
    """The entry of these versions and this machine; None if there is none."""
    return next(
        (e for e in entries if e["versions"] == versions and machine in e["machines"]), None
    )


def assert_near(found, expected):
    """Rows of equal runs on two processors: rounding may change single predictions and the last
    digits of FH.
    """
    assert len(found["steps"]) == len(expected["steps"])
    assert len(found["weights"]) == len(expected["weights"])
    fewest = int(expected["steps"][0]["images"])
    for row, other in zip(found["steps"], expected["steps"], strict=True):
        assert row.keys() == other.keys()
        for column, value in row.items():
            if column in SAME or "" in (value, other[column]):
                assert value == other[column], column
            elif column == "fh":
                assert float(value) == pytest.approx(float(other[column]), rel=FH_APART), column
            else:  # a share of images, or a mean of such shares
                images = int(row["images"]) if column.startswith("accuracy") else fewest
                near = pytest.approx(float(other[column]), abs=(APART + 0.01) / images)
                assert float(value) == near, column


@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_one_rank_gives_the_rows_that_it_gave_before(name, tmp_path):
    entries = json.loads(HELD.read_text())["entries"]
    conditions, found = trained(name, tmp_path / "run")
    assert len(found["steps"]) == 5 and len(found["weights"]) >= 10
    entry = known(entries, *conditions)
    if entry is None:
        assert_near(found, entries[0]["runs"][name])
    else:
        assert found == entry["runs"][name]
