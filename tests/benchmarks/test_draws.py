"""Random draws by key and position: the same in any order, batch and process."""

import random
from hashlib import blake2b

import numpy as np
import pytest
import torch
from avalanche.benchmarks.utils import as_classification_dataset
from strategy_runs import benchmark_of, digit_tensors, jitter
from torch.utils.data import DataLoader, Dataset

from avalanche_hfc.benchmarks.positions import PositionDataset, collate, sample_seeds


def drawing_python(image):
    return image + random.random()


class Samples(Dataset):
    """Not a TensorDataset: read one by one."""

    def __init__(self):
        self.x, self.y = digit_tensors(3, 4)
        self.targets = self.y.tolist()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, index):
        return self.x[index], int(self.y[index])


class Batched(Samples):
    """Reads a batch itself."""

    def __getitems__(self, indices):
        return [self[i] for i in indices]


def tensors(transform):
    return benchmark_of(train_transform=transform).train_stream[0].dataset


def joined(transform):
    """Two sources: two leaves under transforms."""
    return samples(transform).concat(batched(transform))


def samples(transform):
    return as_classification_dataset(
        Samples(), transform_groups={"train": (transform, None), "eval": (None, None)}
    )


def batched(transform):
    return as_classification_dataset(
        Batched(), transform_groups={"train": (transform, None), "eval": (None, None)}
    )


KINDS = {"tensors": tensors, "two leaves": joined, "samples": samples, "batches": batched}
TRANSFORMS = {"torch and numpy": jitter, "python": drawing_python}


@pytest.fixture(params=KINDS)
def flat(request):
    return PositionDataset(KINDS[request.param](jitter))


def test_seeds_are_splitmix64_from_a_hash_of_the_key():
    mask = 2**64 - 1
    start = int.from_bytes(
        blake2b(repr((7, 1, "train", 0)).encode(), digest_size=8).digest(), "little"
    )
    for position in (0, 1, 5, 1_281_166):
        z = (start + (position + 1) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        assert sample_seeds((7, 1, "train", 0), np.asarray([position])) == [(z ^ (z >> 31)) >> 1]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_draws_the_same_in_any_order_and_batch_and_alone(kind, transform):
    flat = PositionDataset(KINDS[kind](TRANSFORMS[transform]))
    flat.seed_draws(3, 1, "train", 2)
    whole = flat.__getitems__(list(range(len(flat))))[0]
    backwards = flat.__getitems__(list(range(len(flat)))[::-1])[0].flip(0)
    torch.rand(5)
    pairs = torch.cat(
        [flat.__getitems__([i, (i + 1) % len(flat)])[0][:1] for i in range(len(flat))]
    )
    alone = torch.stack([flat[i][0] for i in range(len(flat))])
    assert torch.equal(whole, backwards) and torch.equal(whole, pairs) and torch.equal(whole, alone)
    noise = (
        whole - PositionDataset(KINDS[kind](None)).__getitems__(list(range(len(flat))))[0]
    ).flatten(1)
    assert len(noise.unique(dim=0)) == len(flat)


@pytest.mark.parametrize(
    "key", [(4, 1, "train", 2), (3, 2, "train", 2), (3, 1, "tune", 2), (3, 1, "train", 1)]
)
def test_another_seed_step_phase_or_epoch_gives_other_draws(flat, key):
    everything = list(range(len(flat)))
    flat.seed_draws(3, 1, "train", 2)
    first = flat.__getitems__(everything)[0]
    flat.seed_draws(*key)
    other = flat.__getitems__(everything)[0]
    assert all(not torch.equal(a, b) for a, b in zip(first, other, strict=True))
    flat.seed_draws(3, 1, "train", 2)
    assert torch.equal(flat.__getitems__(everything)[0], first)


def test_the_number_of_loader_processes_changes_nothing_and_the_generators_are_left_alone(flat):
    found = []
    for num_workers in (0, 2):
        flat.seed_draws(0, 0, "train", 0)
        torch.manual_seed(5)
        np.random.seed(5)
        loader = DataLoader(
            flat, batch_size=4, shuffle=True, num_workers=num_workers, collate_fn=collate
        )
        found.append(
            [
                torch.cat([batch[0] for batch in loader]),
                torch.rand(1),
                torch.tensor(np.random.rand()),
            ]
        )
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_without_a_key_or_a_random_transform_nothing_changes():
    plain, random_one = (PositionDataset(tensors(transform)) for transform in (None, jitter))
    before = plain.__getitems__([2, 0])[0]
    plain.seed_draws(1, 2)
    assert torch.equal(plain.__getitems__([2, 0])[0], before)
    torch.manual_seed(0)
    np.random.seed(0)
    expected = random_one.__getitems__([1, 2])[0]
    torch.manual_seed(0)
    np.random.seed(0)
    assert torch.equal(torch.stack([random_one.dataset[i][0] for i in (1, 2)]), expected)


def test_copies_of_a_sample_draw_apart_and_the_first_as_ever(flat):
    n = len(flat)
    flat.seed_draws(3, 1, "train", 2)
    single = flat.__getitems__(list(range(n)))
    flat.copies = 3
    three = flat.__getitems__(list(range(3 * n)))
    assert len(flat) == n and torch.equal(three[0][:n], single[0])
    assert all(
        torch.equal(column, one.repeat(3))
        for column, one in zip(three[1:], single[1:], strict=True)
    )
    assert len(three[0].flatten(1).unique(dim=0)) == 3 * n
    assert torch.equal(torch.stack([flat[p][0] for p in range(3 * n)]), three[0])
    for found in (flat.__getitem__, lambda p: flat.__getitems__([p])):
        with pytest.raises(
            IndexError, match=rf"positions must be one or more in 0\.\.{3 * n - 1}, got \[{3 * n}\]"
        ):
            found(3 * n)
    flat.copies = 1
    with pytest.raises(IndexError):
        flat.__getitems__([n])
