"""Rows of counts and counts of rows, against loops over a dense matrix, and at sizes at which no
matrix would fit.
"""

import pickle

import pytest
import torch
from room import at_most_more
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_hfc.lab import record
from avalanche_hfc.lab.record import class_rows, confusion_rows, counts_of, judge
from avalanche_hfc.lab.run_folder import RunFolder, RunRows
from avalanche_hfc.metrics import evaluate
from avalanche_hfc.metrics.evaluation import count
from avalanche_hfc.ranks import World

NAMES = ("confusion", "total", "correct_nme", "gradient_sum", "gradient_square_sum")
MANY = 20_000  # classes: a dense matrix needs 3.2 GB
ROOM = 2**30


def some_counts(num_images, num_classes, *, seed=0, nme=True):
    generator = torch.Generator().manual_seed(seed)
    targets, predicted, nearest = torch.randint(num_classes, (3, num_images), generator=generator)
    gradient = torch.rand(num_images, generator=generator)
    return count(targets, predicted, gradient, num_classes, nearest if nme else None)


def written(folder, counts):
    """Rows of these steps, all classes being of the first step."""
    rows = RunRows(RunFolder(folder))
    for step, each in enumerate(counts):
        steps = torch.zeros(len(each.total), dtype=torch.int64)
        names = [f"n{k}" for k in range(len(steps))]
        rows.add("classes", class_rows(step, each, steps, names))
        rows.add("confusion", confusion_rows(step, each))
    return rows


def test_the_rows_are_the_cells_of_the_dense_matrix_that_are_not_0_by_class_then_prediction():
    counts = some_counts(40, 7)
    matrix = counts.confusion.tolist()
    expected = [
        {"step": 3, "class": k, "predicted": predicted, "count": matrix[k][predicted]}
        for k in range(7)
        for predicted in range(7)
        if matrix[k][predicted]
    ]
    assert list(confusion_rows(3, counts)) == expected and 20 < len(expected) < 40


@pytest.mark.parametrize("nme", [True, False])
def test_counts_come_back_from_their_rows(tmp_path, nme):
    counts = [some_counts(40 + seed, 7, seed=seed, nme=nme) for seed in range(3)]
    found = counts_of(written(tmp_path, counts), 7)
    assert len(found) == 3
    for one, other in zip(counts, found, strict=True):
        for name in NAMES:
            before, after = getattr(one, name), getattr(other, name)
            assert (before is None and after is None) or torch.equal(before, after), name


def test_a_step_without_cells_comes_back_as_zeros(tmp_path):
    rows = written(tmp_path, [some_counts(5, 3)])
    rows.files["confusion"].replace([])
    [found] = counts_of(rows, 3)
    assert found.confusion.tolist() == [[0, 0, 0]] * 3 and found.total.sum() == 5


def test_rows_of_many_classes_are_written_and_read_without_a_matrix(tmp_path):
    counts = some_counts(2 * MANY, MANY)
    with at_most_more(ROOM):
        [found] = counts_of(written(tmp_path, [counts]), MANY)
        with pytest.raises(RuntimeError, match="can't allocate memory"):
            _ = found.confusion  # the bound is one that a dense matrix breaks
    assert torch.equal(found.cells.indices(), counts.cells.indices())
    assert torch.equal(found.cells.values(), counts.cells.values())
    assert all(torch.equal(getattr(found, name), getattr(counts, name)) for name in NAMES[1:])


class Head(nn.Module):
    """The images are the logits, and the embeddings."""

    def embed(self, images):
        return images

    def classify(self, embedding):
        return embedding

    def forward(self, images):
        return images


class Predicts:
    """What `judge` asks of a strategy."""

    def __init__(self, means):
        self.predictor, self.class_means = Head(), lambda: means


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("nme", [True, False])
def test_the_counts_of_all_ranks_are_those_of_one(monkeypatch, annotations_unchecked, ranks, nme):
    torch.manual_seed(0)
    steps = torch.tensor([0, 1, 0, 1, 1])
    data = TensorDataset(torch.randn(45, 5), torch.randint(5, (45,)))
    means = dict(enumerate(torch.eye(5))) if nme else None
    strategy = Predicts(means)
    parts = []
    monkeypatch.setattr(record, "BATCH", 10)  # five batches
    monkeypatch.setattr(record, "together", lambda action: action())
    monkeypatch.setattr(record, "gather_objects", lambda own: parts.append(own) or [own])
    for rank in range(ranks):
        monkeypatch.setattr(record, "world", lambda rank=rank: World(rank, ranks))
        judge(strategy, data, steps)
    sent = pickle.dumps(parts)
    assert not any(value is not None and value.is_sparse for part in parts for value in part)
    monkeypatch.setattr(record, "gather_objects", lambda own: pickle.loads(sent))
    found, expected = judge(strategy, data, steps), evaluate(Head(), data, steps, class_means=means)
    assert max(int(counts.sum()) for _, counts, *_ in parts) < 45
    for name in NAMES[:2]:
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert torch.equal(found.cells.indices(), expected.cells.indices())  # each cell once
    for name in NAMES[3:]:
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))
    assert (
        found.correct_nme is None
        if not nme
        else torch.equal(found.correct_nme, expected.correct_nme)
    )
