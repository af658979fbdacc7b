"""What the bench compares with computes the same."""

from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from avalanche_hfc.lab.data import build_benchmark
from avalanche_hfc.lab.rows import read_rows
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


def test_the_rows_of_one_part_take_the_place_of_the_old_ones(monkeypatch, tmp_path):
    from experiments import bench
    from experiments.benches.timing import Row

    def rows_of(parts):
        for part in parts:
            yield Row(f"{part}: first", "that", float(len(rates)), 1.0, "s", "none", 9.0)
            yield Row(f"{part}: second", "that", 5.0, 1.0, "s", "none", 9.0)

    rates, table = [], tmp_path / "bench.csv"
    monkeypatch.setattr(bench, "rows_of", rows_of)
    monkeypatch.setattr(bench, "SPEED", ("model", "data"))
    monkeypatch.setattr(bench, "SCALE", ("arithmetic",))
    for words in ([], ["--part", "model"], ["--part", "arithmetic"]):
        rates.append(1)
        monkeypatch.setattr("sys.argv", ["bench.py", "--out", str(table), *words])
        bench.main()
    found = {row["row"]: float(row["ours"]) for row in read_rows(table)}
    assert list(found.items()) == [
        ("model: first", 2.0), ("model: second", 5.0), ("data: first", 1.0), ("data: second", 5.0),
        ("arithmetic: first", 3.0), ("arithmetic: second", 5.0),
    ]  # fmt: skip
