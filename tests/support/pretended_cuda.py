"""A CUDA device that only pretends: its tensors hold values on the host, and meet tensors of the
host as little as real ones do.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

COPIES = ("_to_copy", "copy_")


class Pretended(torch.Tensor):
    @staticmethod
    def __new__(cls, values):
        return torch.Tensor._make_wrapper_subclass(
            cls, values.shape, strides=values.stride(), dtype=values.dtype, device="meta"
        )

    def __init__(self, values):
        self.values_held = values

    device = torch.device(
        "cuda:0"
    )  # torch itself sees the meta device, for which it asks no driver
    __torch_function__ = torch._C._disabled_torch_function_impl

    def tolist(self):
        return self.cpu().tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise AssertionError(f"{function} outside of PretendedCuda")


class PretendedCuda(TorchDispatchMode):
    """Inside, `.to("cuda")` works. Raises where tensors of two devices meet; counts what the host
    reads and the copies it waits for.
    """

    def __init__(self):
        super().__init__()
        self._mode_key = (
            torch._C._TorchDispatchModeKey.FAKE
        )  # torch then leaves the real CUDA alone
        self.host_reads = self.copies_waited_for = 0

    def __enter__(self):
        self._lifts = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(
            True
        )  # torch.tensor(..., device=...) makes its copy where it is seen
        return super().__enter__()

    def __exit__(self, *error):
        torch._C._set_only_lift_cpu_tensors(self._lifts)
        return super().__exit__(*error)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), function.overloadpacket.__name__
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        there = any(isinstance(t, Pretended) for t in tensors)
        if (
            there
            and name not in COPIES
            and any(t.dim() and not isinstance(t, Pretended) for t in tensors)
        ):
            raise RuntimeError(f"{name}: tensors on cuda and cpu.")
        target = kwargs.pop("device", None)
        goes_there = there if target is None else target.type == "cuda"
        self.host_reads += there and (name == "_local_scalar_dense" or not goes_there)
        self.copies_waited_for += (
            not there and goes_there and name == "_to_copy" and not kwargs.get("non_blocking")
        )
        values, options = tree_map_only(Pretended, lambda t: t.values_held, (args, kwargs))
        result = function(*values, **options)
        if function._schema.is_mutable and isinstance(result, torch.Tensor):
            return args[0]
        return tree_map_only(torch.Tensor, Pretended, result) if goes_there else result
