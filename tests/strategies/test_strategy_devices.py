"""One training batch on a device that is not the host: nothing is left behind, nothing is read
back.
"""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from strategy_runs import hfc, mlp, vit
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from watches import RefusesHostReads, needs_fake_cuda

from avalanche_hfc import ranks
from avalanche_hfc.plugins import FrozenTeacher, StepTable
from avalanche_hfc.plugins.losses import HostedPlugin
from avalanche_hfc.ranks import Share, World, arrange_layers, begin_epoch

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


def second_step(model, teacher, form="default", **options):
    """A strategy in its second step, with a teacher and a batch, all on a fake CUDA device."""
    strategy = hfc(on_fake_cuda(model), form=form, device="cuda", **options)
    strategy.is_training = True
    StepTable.of(strategy).load_state_dict({"classes": [1, 4, 0, 5], "steps": [0, 0, 1, 1]})
    FrozenTeacher.of(strategy).hold(on_fake_cuda(teacher), 0)
    strategy._before_training()
    for plugin in strategy.plugins:
        if isinstance(plugin, HostedPlugin):
            plugin.table = StepTable.of(strategy)  # as its `before_training_exp` does
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


def grown(name):
    model = MODELS[name]()
    (model.head if hasattr(model, "head") else model[-1]).grow(range(6))
    return model


@needs_fake_cuda
@pytest.mark.parametrize("form", ["default", "paper", "official"])
@pytest.mark.parametrize("name", MODELS)
def test_a_training_batch_stays_on_the_device_and_reads_nothing_on_the_host(name, form):
    model, teacher = grown(name), grown(name)
    with FakeTensorMode():
        strategy = second_step(model, teacher, form)
        one_batch(strategy)  # the table of steps goes to the device once
        with RefusesHostReads():
            terms = one_batch(strategy)
        assert strategy.mb_output.device.type == strategy.loss.device.type == "cuda"
        assert set(terms) == (set() if form == "official" else {"compensation", "relation"})
        assert all(term.device.type == "cuda" for term in terms.values())


@pytest.fixture
def sent(monkeypatch):
    """This process is rank 1 of 2; the devices of what it sends."""
    devices = []

    def all_gather(parts, own):
        devices.append(own.device.type)
        for part in parts:
            part.copy_(own)

    monkeypatch.setattr(dist, "all_gather", all_gather)
    monkeypatch.setattr(dist, "all_reduce", lambda values: devices.append(values.device.type))
    monkeypatch.setattr("avalanche_hfc.ranks.world", lambda: World(1, 2))
    return devices


@needs_fake_cuda
@pytest.mark.parametrize("name", MODELS)
def test_a_share_of_a_batch_is_gathered_on_the_device(name, sent):
    model, teacher = grown(name), grown(name)
    with FakeTensorMode():
        strategy = second_step(model, teacher)
        strategy.share = Share(1, 2, 15)  # of which 8 are rank 0's
        strategy.mbatch[0] = strategy.mbatch[0][:7]
        strategy.mbatch[1] = torch.zeros(15, dtype=torch.int64, device="cuda")
        one_batch(strategy)
        with RefusesHostReads():
            one_batch(strategy)
            mean = strategy.averaged(strategy.mb_output[:7].mean())
        assert len(strategy.mb_output) == 15
        assert strategy.loss.device.type == mean.device.type == "cuda"
    assert len(sent) >= 5 and set(sent) == {"cuda"}


def test_batch_norm_on_ranks_of_cuda_is_that_of_torch_and_keeps_its_parameters(sent):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    before = model[1]
    arrange_layers("Mine", model, torch.device("cuda"))
    assert type(model[1]) is nn.SyncBatchNorm
    assert model[1].weight is before.weight and model[1].running_mean is before.running_mean


def test_layers_draw_otherwise_on_each_rank_and_epoch_of_cuda_and_alike_when_repeated(monkeypatch):
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed", seeds.append)
    monkeypatch.setattr(ranks, "agree", lambda name, value: None)
    clock = SimpleNamespace(train_exp_epochs=0, train_exp_counter=1)
    strategy = SimpleNamespace(
        device=torch.device("cuda"), clock=clock, phase="train", phase_running=None, draw_seed=3
    )
    for rank, clock.train_exp_epochs in ((0, 0), (1, 0), (0, 1), (0, 0)):
        monkeypatch.setattr(ranks, "world", lambda rank=rank: World(rank, 2))
        begin_epoch(strategy)
    assert len(set(seeds)) == 3 and seeds[3] == seeds[0]
