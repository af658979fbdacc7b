"""Random draws of a sample's transforms from a seed of its own: the same in any order, in any
process.

Annotations name no items (`list`, not `list[int]`): the type checker of the tests would draw from
python's generator to look at one.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
import torch

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def sample_seeds(key: tuple, positions: np.ndarray) -> list:
    """A seed in [0, 2⁶³) for each position, by `key` and position alone: splitmix64 from a hash of
    the key.
    """
    return seeds_from(key_hash(key), positions)


def key_hash(key: tuple) -> np.ndarray:
    """64 bits of a key, as one number."""
    return np.frombuffer(blake2b(repr(key).encode(), digest_size=8).digest(), dtype=np.uint64)


def seeds_from(start: np.ndarray, positions: np.ndarray) -> list:
    """`sample_seeds` of the key with this hash."""
    mixed = start + (positions.astype(np.uint64) + np.uint64(1)) * GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(1)).tolist()


def seed_generators(seed: int) -> None:
    """Seed what transforms draw from: the global generators of torch (CPU), numpy and python."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002
    random.seed(seed)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Inside, draws from the global generators leave no trace."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002 (the global one is what leaves draw from)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])


def draws(read: Callable[[], object]) -> bool:
    """Whether `read` draws from a global generator."""
    with generators_kept():
        seed_generators(0)
        before = torch.get_rng_state(), _numpy_state(), random.getstate()
        read()
        after = torch.get_rng_state(), _numpy_state(), random.getstate()
        return not torch.equal(before[0], after[0]) or before[1:] != after[1:]


def _numpy_state() -> tuple:
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return name, np.asarray(keys).tobytes(), *rest
