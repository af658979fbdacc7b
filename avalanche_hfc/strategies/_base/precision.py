"""The precision of a training: autocast, TF32, and the scale of its gradients."""

import platform
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor
from torch.optim import Optimizer

from avalanche_hfc._names import lookup
from avalanche_hfc._types import State

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
TF32 = ("high", True)  # as `set_products` takes it
SLOW = (  # ResNet-32, with oneDNN kept from the instructions: docs/speed.md
    "This CPU has no instructions for bfloat16: training in it takes about twice as long as in "
    "float32 with AVX-512, and eight times as long without."
)


class Precision:
    """Forward passes of a training under torch's autocast. Weights and losses stay in float32.

    Gradients of float16 are scaled, so that small ones are not lost; a batch whose gradients
    overflow changes no weight, and lowers the scale.

    Args:
        owner: The strategy, for the message.
        name: ``"float32"`` for no autocast, ``"bfloat16"`` or ``"float16"``.
        device: Where the model runs.
        tf32: Multiply float32 numbers as TF32 in training.

    Raises:
        ValueError: If the name is unknown, or float16 is asked for on a CPU, or TF32 on anything
            but CUDA.
    """

    def __init__(self, owner: str, name: str, device: torch.device, *, tf32: bool = False):
        self.dtype = lookup(PRECISIONS, name, "precision")
        self.device = device
        self.tf32 = tf32
        self.found: tuple[str, bool] | None = None  # torch's flags outside of `products`
        check_precision(owner, name, device, tf32=tf32)
        if self.dtype is torch.bfloat16 and device.type == "cpu" and not has_bfloat16():
            warnings.warn(SLOW, stacklevel=2)
        self.scaler: torch.amp.GradScaler | None = None
        if self.dtype is torch.float16:
            self.scaler = torch.amp.GradScaler(device.type)

    @contextmanager
    def products(self) -> Iterator[None]:
        """A context for the batches of a training: with `tf32`, products of float32 numbers on the
        GPU are TF32. torch's flags are afterwards as they were; without `tf32` they stay as they
        are.
        """
        if not self.tf32:
            yield
            return
        before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        self.found = before
        set_products(*TF32)
        try:
            yield
        finally:
            self.found = None
            set_products(*before)

    @contextmanager
    def exact(self) -> Iterator[None]:
        """A context for an evaluation, which may be inside `autocast` and `products`: without
        them.
        """
        found = self.found
        with self.full():
            if found is None:
                yield
                return
            set_products(*found)
            try:
                yield
            finally:
                set_products(*TF32)

    def autocast(self) -> AbstractContextManager[object]:
        """A context for forward passes and losses; in float32 it changes nothing."""
        return nullcontext() if self.dtype is None else torch.autocast(self.device.type, self.dtype)

    def full(self) -> AbstractContextManager[object]:
        """A context inside `autocast` for what it must not change, such as a backward pass."""
        if self.dtype is None:
            return nullcontext()
        return torch.autocast(self.device.type, enabled=False)

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss to differentiate."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def unscale(self, optimizer: Optimizer) -> None:
        """Undo the scale in the gradients of an optimizer's parameters.

        Gradients that are not finite become None, so that no optimizer uses them.
        """
        if self.scaler is None:
            return
        self.scaler.unscale_(optimizer)
        self.scaler.update()
        trained = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in trained if p.grad is not None]
        if not all(bool(gradient.isfinite().all()) for gradient in gradients):
            for parameter in trained:
                parameter.grad = None

    def state_dict(self) -> State:
        """The scale and its history; empty without a scale."""
        return {} if self.scaler is None else self.scaler.state_dict()

    def load_state_dict(self, state: State) -> None:
        """Restore what `state_dict` returned."""
        if self.scaler is not None and state:
            self.scaler.load_state_dict(state)


def has_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 numbers by instructions of its own."""
    if platform.machine() in ("x86_64", "AMD64"):
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.ops.mkldnn._is_mkldnn_bf16_supported()


def check_precision(owner: str, name: str, device: torch.device, *, tf32: bool) -> None:
    """Raise a ValueError where a device lacks the precision, as `Precision` does; the device may be
    that of another machine.
    """
    if tf32 and device.type != "cuda":
        raise ValueError(
            f"{owner}: tf32=True needs a CUDA GPU, got device '{device}'. Use tf32=False."
        )
    if lookup(PRECISIONS, name, "precision") is torch.float16 and device.type == "cpu":
        raise ValueError(
            f"{owner}: precision 'float16' needs a GPU, got device 'cpu'. Use bfloat16 or float32."
        )


def set_products(matmul: str, convolutions: bool) -> None:
    """Set how torch multiplies float32 numbers on a GPU."""
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = convolutions
