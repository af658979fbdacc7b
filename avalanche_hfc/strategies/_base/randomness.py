"""The state of every generator that a training draws from, as tensors and plain data."""

import random

import numpy as np
import torch

from avalanche_hfc._types import State


def random_state(device: torch.device) -> State:
    version, internal, gauss = random.getstate()
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002  # the global generator is what transforms and users draw from
    return {
        "torch": torch.get_rng_state(),
        "device": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        "python": [version, list(internal), gauss],
        "numpy": [name, torch.tensor(np.asarray(keys, dtype=np.int64)), *rest],
    }


def set_random_state(state: State, device: torch.device) -> None:
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["device"] is not None:
        torch.cuda.set_rng_state(state["device"], device)
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
