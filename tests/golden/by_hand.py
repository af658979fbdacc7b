"""Replay one recording and print how far our training is from the authors', phase by phase.

    python -W ignore tests/golden/by_hand.py NAME

NAME is one of the trajectories of docs/fidelity.md, such as hfc_paper. Every update is compared; an
AssertionError names the first one that differs.
"""

import argparse
import io
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout

import methods
import pytest
from recordings import load
from replay import follow
from test_trajectories import NAMES


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=NAMES, metavar="NAME")
    name = parser.parse_args().name
    recording = load(name)
    print(f"Training as {name} did …", flush=True)
    with (  # what Avalanche prints of its epochs is left out
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()),
    ):
        follower = follow(recording, getattr(methods, name)(recording), patch)
    updates = Counter((update.step, update.phase) for update in recording.updates)
    print(f"\n{'step':4} {'phase':9} {'updates':>7}    largest relative difference")
    for (step, phase), count in updates.items():
        worst = follower.worst[step, phase].items()
        told = "   ".join(f"{kind} {difference:.0e}" for kind, difference in worst)
        print(f"{step:4} {phase:9} {count:7}    {told}")
    compared = "exemplars, logits and accuracy"
    if recording.steps[0].accuracy is None:
        compared = "exemplars and logits"
    print(
        f"{follower.followed} updates followed. After each of {len(recording.steps)} steps, "
        f"{compared} are the recorded ones."
    )


if __name__ == "__main__":
    main()
