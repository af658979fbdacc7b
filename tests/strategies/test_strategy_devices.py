"""One training batch on a device that is not the host: nothing is left behind, nothing is read
back.
"""

import pytest
import torch
from strategy_runs import hfc, mlp, vit
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from watches import RefusesHostReads, needs_fake_cuda

from avalanche_hfc.plugins import FrozenTeacher, StepTable

MODELS = {
    "mlp": lambda: mlp("growing"),
    "vit": vit,
    "vit with a frozen prefix": lambda: vit(msa_blocks=2, frozen_blocks=1),
}


def on_fake_cuda(model):
    """Parameters and buffers become empty ones there. `model.to` cannot move a fake tensor."""
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                module._parameters[name] = nn.Parameter(
                    torch.empty(parameter.shape, device="cuda"), parameter.requires_grad
                )
        for name, buffer in list(module._buffers.items()):
            module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device="cuda")
    return model


def second_step(model, teacher, form):
    """A strategy in its second step, with a teacher and a batch, all on a fake CUDA device."""
    strategy = hfc(on_fake_cuda(model), form=form, device="cuda")
    strategy.is_training = True
    StepTable.of(strategy).load_state_dict({"classes": [1, 4, 0, 5], "steps": [0, 0, 1, 1]})
    FrozenTeacher.of(strategy).hold(on_fake_cuda(teacher), 0)
    strategy._before_training()
    strategy.mbatch = [
        torch.empty(8, 1, 8, 8, device="cuda"),
        torch.zeros(8, dtype=torch.int64, device="cuda"),
    ]
    return strategy


def one_batch(strategy):
    """As `training_epoch` composes it, up to the backward pass."""
    strategy.loss = strategy._make_empty_loss()
    strategy._before_forward()
    strategy.mb_output = strategy.forward()
    strategy._after_forward()
    strategy.loss += strategy.criterion()
    for plugin in strategy.plugins:
        if hasattr(plugin, "loss_terms"):  # the evaluator would read the loss
            plugin.before_backward(strategy)
    terms = {
        name: term
        for plugin in strategy.plugins
        for name, term in getattr(plugin, "loss_terms", {}).items()
    }
    strategy.losses.add(strategy.loss.detach(), terms)
    StepTable.of(strategy).forget_batch()
    FrozenTeacher.of(strategy).forget_batch()
    return terms


@needs_fake_cuda
@pytest.mark.parametrize("form", ["default", "paper", "official"])
@pytest.mark.parametrize("name", MODELS)
def test_a_training_batch_stays_on_the_device_and_reads_nothing_on_the_host(name, form):
    model, teacher = MODELS[name](), MODELS[name]()
    for net in (model, teacher):
        (net.head if hasattr(net, "head") else net[-1]).grow(range(6))
    with FakeTensorMode():
        strategy = second_step(model, teacher, form)
        one_batch(strategy)  # the table of steps goes to the device once
        with RefusesHostReads():
            terms = one_batch(strategy)
        assert strategy.mb_output.device.type == strategy.loss.device.type == "cuda"
        assert set(terms) == (set() if form == "official" else {"compensation", "relation"})
        assert all(term.device.type == "cuda" for term in terms.values())
