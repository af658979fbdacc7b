"""A process of a pool that is killed is the failure of its own work."""

import os
import signal
from pathlib import Path

import pytest

from avalanche_hfc.lab.jobs import outcomes

pytestmark = pytest.mark.kill


def killed_at_first(path):
    """Ends its process, as the system does when memory runs out, the first time; `always`: every
    time; `never`: not.
    """
    path = Path(path)
    with path.open("a") as file:
        file.write("x")
    if path.name == "always" or (path.name == "once" and path.read_text() == "x"):
        os.kill(os.getpid(), signal.SIGKILL)
    return path.read_text()


def test_one_that_is_killed_is_tried_once_more_and_the_others_are_not_touched(tmp_path):
    names = ["always", "once", "never", "other"]
    found = outcomes(killed_at_first, [str(tmp_path / name) for name in names], jobs=2)
    by_name = {Path(outcome.item).name: outcome for outcome in found}
    assert sorted(by_name) == sorted(names)
    assert by_name["once"].result == "xx" and by_name["never"].result == "x"
    assert by_name["other"].error is None
    assert by_name["always"].error == (
        "The process was killed by SIGKILL (possibly out of memory); tried 2 times."
    )
