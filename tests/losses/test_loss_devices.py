"""The losses on a device: nothing read on the host, nothing moved, nothing of size C², one compiled
graph.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from batches import all_losses, draw_batch, value_and_gradient
from test_method_promises import LOSSES as OF_METHODS
from torch._subclasses.fake_tensor import FakeTensorMode
from watches import Measures, RefusesHostReads, needs_fake_cuda

from avalanche_hfc.losses import compensation_weights, relation_targets

LOSSES = all_losses()
every_loss = pytest.mark.parametrize("name", LOSSES)


@every_loss
def test_no_value_is_read_on_the_host(name):
    logits, *others = draw_batch(4, num_steps=3, per_step=3, num_samples=8)
    logits.requires_grad_()
    with RefusesHostReads():
        LOSSES[name](logits, *others).backward()
    assert logits.grad.any()


MISTAKES = {
    "item": lambda t: t.sum().item(),
    "branch": lambda t: 1 if t.sum() > 0 else 0,
    "mask": lambda t: t[t > 0],
    "masked store": lambda t: t.clone().__setitem__(t > 0, 0),
    "select": lambda t: t.masked_select(t > 0),
    "unique": lambda t: t.unique(),
    "nonzero": lambda t: t.nonzero(),
    "count": lambda t: t.long().abs().bincount(),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_watch_refuses_what_reads_the_host(name):
    with RefusesHostReads(), pytest.raises(AssertionError, match="on the host"):
        MISTAKES[name](torch.tensor([1.0, -2.0]))


@needs_fake_cuda
@every_loss
def test_a_loss_stays_on_the_device_of_its_inputs(name):
    with FakeTensorMode(), RefusesHostReads():
        batch = [torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in BATCH]
        assert LOSSES[name](*batch).device.type == "cuda"
        logits, targets, teacher, steps = batch
        assert compensation_weights(logits, targets, steps).device.type == "cuda"
        assert relation_targets(targets, teacher, steps, normalise=True).device.type == "cuda"


def test_the_watch_refuses_a_move_between_devices():
    with FakeTensorMode(), RefusesHostReads():
        on_device = torch.empty(3, device="cuda")
        with pytest.raises(AssertionError, match="moves a tensor between"):
            on_device.cpu()
        with pytest.raises(AssertionError, match="moves a tensor between"):
            on_device + torch.tensor(1.0)


@every_loss
@pytest.mark.parametrize(("num_samples", "per_step"), [(8, 600), (200, 1)])
def test_no_tensor_is_larger_than_the_logits_and_the_pairs_of_samples(name, num_samples, per_step):
    batch = draw_batch(4, num_steps=3, per_step=per_step, num_samples=num_samples)
    with Measures() as measures:
        value_and_gradient(LOSSES[name], *batch)
    num_columns = len(batch[3])
    assert 0 < measures.largest <= num_samples * num_columns + num_samples**2


@every_loss
def test_the_number_of_operations_does_not_depend_on_samples_or_classes(name):
    counts = set()
    for num_samples, per_step in ((2, 1), (8, 60), (64, 3)):
        batch = draw_batch(4, num_steps=3, per_step=per_step, num_samples=num_samples)
        with Measures() as measures:
            value_and_gradient(LOSSES[name], *batch)
        counts.add(measures.operations)
    assert len(counts) == 1


BATCH = draw_batch(4, num_steps=3, per_step=3, num_samples=8)
COMPILED = """
import sys
sys.path[:0] = sys.argv[1:]
import torch
from batches import all_losses, draw_batch, value_and_gradient
from test_method_promises import LOSSES as OF_METHODS

batch = draw_batch(4, num_steps=3, per_step=3, num_samples=8)
summed = {name: lambda *given, loss=loss: loss(*given).sum() for name, loss in OF_METHODS.items()}
for name, loss in (all_losses() | summed).items():
    plain = value_and_gradient(loss, *batch)
    compiled = value_and_gradient(torch.compile(loss, fullgraph=True, backend="aot_eager"), *batch)
    torch.testing.assert_close(compiled, plain, rtol=1e-12, atol=1e-15, msg=name)
    torch.compiler.reset()  # one lambda stands for many losses
    print(name)
"""


def test_every_loss_compiled_as_one_graph_gives_the_same_value_and_gradient():
    """In a process of its own: annotations are not enforced there, as in use."""
    folders = [Path(__file__).parent, Path(__file__).parents[1] / "support"]
    result = subprocess.run(
        [sys.executable, "-c", COMPILED, *folders], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [*LOSSES, *OF_METHODS]
