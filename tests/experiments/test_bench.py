"""What the bench compares with computes the same."""

from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from avalanche_hfc.lab.data import build_benchmark
from avalanche_hfc.models.tsa import TSABlock


@pytest.fixture(autouse=True)
def from_the_root(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))


def test_the_unfolded_block_gives_what_the_block_gives():
    from experiments.benches.model import UnfoldedTSA

    torch.manual_seed(0)
    folded, unfolded = TSABlock(32, 4), UnfoldedTSA(32, 4)
    unfolded.load_state_dict(folded.state_dict())
    embedding, tokens = torch.randn(1, 32), torch.randn(3, 5, 32)
    torch.testing.assert_close(unfolded(embedding, tokens), folded(embedding, tokens))


def test_few_and_many_steps_have_the_same_images(monkeypatch):
    from experiments.benches import steps

    images = {
        number: [
            len(step.dataset) for step in build_benchmark(steps.planned(number), 0).train_stream
        ]
        for number in (steps.FEW, steps.MANY)
    }
    assert {number: len(found) for number, found in images.items()} == {1: 1, 5: 5}
    assert {sum(found) for found in images.values()} == {10 * steps.PER_CLASS}
    monkeypatch.setattr(steps, "side_by_side", lambda works, repeats: {"1": 0.2, "5": 0.5})
    (row,) = steps.rows()
    assert (row.ours, row.reference) == (500, 200) and row.met
    assert row.name.startswith("CPU time of a run of 5 steps")


def test_the_bytes_counted_are_those_in_use_at_a_time():
    from experiments.benches.hardware import LiveBytes

    row = 4 * 1000  # bytes
    x = torch.ones(8, 1000, requires_grad=True)

    def sines(rows):
        """Each keeps its input for the backward pass: the first has `rows`, which may be known."""
        for _ in range(10):
            rows = rows.sin()
        return rows

    with LiveBytes([x]) as counted:
        y = x.sin()
        del y
        x[:2].sin()
    assert (counted.live, counted.peak) == (0, 8 * row)

    def peak(forward):
        with LiveBytes([x]) as counted:
            forward().sum().backward()
        x.grad = None
        return counted.peak / row

    whole = peak(lambda: sines(x))
    parts = [x[:4], x[4:]]
    less = peak(lambda: torch.cat([checkpoint(sines, p, use_reentrant=False) for p in parts]))
    assert 9 * 8 <= whole <= 13 * 8
    assert 9 * 4 <= less <= 13 * 4 + 4 * 8
