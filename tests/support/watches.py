"""Modes that look at every operation of a loss: what it reads on the host, what it moves, how large
it grows, whether autocast reaches it.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def indexes_fake_cuda():
    """Whether this torch indexes fake tensors on cuda where there is no driver."""
    try:
        with FakeTensorMode():
            torch.zeros(2, device="cuda")[torch.zeros(1, dtype=torch.long, device="cuda")]
    except (RuntimeError, AssertionError):
        return False
    return True


needs_fake_cuda = pytest.mark.skipif(
    not indexes_fake_cuda(), reason="this torch asks for a driver to index fake tensors on cuda"
)
SYNCHRONISES = (
    "local_scalar_dense",
    "nonzero",
    "unique",
    "bincount",
    "masked_select",
    "is_nonzero",
    "equal",
    "argwhere",
)


class RefusesHostReads(TorchDispatchMode):
    """Raises where an operation would make the host wait for the device, or moves a tensor between
    devices.
    """

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        if name.lstrip("_").startswith(SYNCHRONISES):
            raise AssertionError(f"{name} reads a value on the host")
        if name.startswith("index") and any(
            t.dtype in (torch.bool, torch.uint8) for t in indices(args)
        ):
            raise AssertionError(f"{name} with a mask reads its count on the host")
        result = function(*args, **kwargs)
        places = {
            t.device.type
            for t in tree_leaves((args, kwargs, result))
            if isinstance(t, torch.Tensor)
        }
        if len(places) > 1:
            raise AssertionError(f"{name} moves a tensor between {sorted(places)}")
        return result


def indices(args):
    return [
        t for a in args[1:] if isinstance(a, list | tuple) for t in a if isinstance(t, torch.Tensor)
    ]


class Measures(TorchDispatchMode):
    """Counts the operations, and the elements of the largest tensor any of them makes."""

    def __init__(self):
        super().__init__()
        self.operations, self.largest = 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.operations += 1
        self.largest = max(
            [self.largest, *(t.numel() for t in tree_leaves(result) if isinstance(t, torch.Tensor))]
        )
        return result


class SeesAutocast(TorchFunctionMode):
    """Notes the floating-point operations that run while autocast is on."""

    def __init__(self):
        super().__init__()
        self.inside = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if (
            torch.is_autocast_enabled("cpu")
            and isinstance(result, torch.Tensor)
            and result.is_floating_point()
        ):
            self.inside.append(function)
        return result
