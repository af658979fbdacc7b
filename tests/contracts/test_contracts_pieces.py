"""A batch in pieces trains what the whole batch trains: weights, exemplars, predictions."""

from functools import cache

import pytest
import timm.layers
import torch
from contract_entries import small_cnn
from contract_ranks import BATCH, BY_NAME, distance, trained
from contract_runs import benchmark_of, build, seed
from strategy_runs import vit
from torch import nn
from torchvision import ops
from torchvision.ops import StochasticDepth

from avalanche_hfc.parallel.pieces import check_divisible
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.plugins.teacher import FrozenTeacher
from avalanche_hfc.strategies import STRATEGIES

PIECE = 4  # of batches of 9: pieces of 4, 4 and 1; last batches of 1 and 2 are not divided


def bound(name):
    """How far the weights may be apart. AFC divides by the length of maps, which rounding turns."""
    return 1e-5 * (20 if name.startswith("afc") else 1)


@cache
def whole(name):
    return trained(name)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.quick] if name == "hfc" else []) for name in BY_NAME],
)
def test_pieces_train_what_the_whole_batch_trains(name):
    divided = trained(name, micro_batch=PIECE)
    assert distance(whole(name)["weights"], divided["weights"]) < bound(name)
    assert whole(name)["exemplars"] == divided["exemplars"]
    assert torch.equal(whole(name)["confusion"], divided["confusion"])
    assert whole(name)["loss"] == pytest.approx(divided["loss"], rel=1e-3)


def each_piece_alone(strategy):
    """Gradient accumulation: the mean of losses that see their own piece only."""
    whole_batch, loss = strategy.mbatch, strategy.loss
    strategy.optimizer.zero_grad()
    for start in range(0, len(whole_batch[0]), PIECE):
        strategy.mbatch = [column[start : start + PIECE] for column in whole_batch]
        for cache_of_batch in (StepTable.of(strategy), FrozenTeacher.of(strategy)):
            cache_of_batch.forget_batch()
        strategy.loss = strategy._make_empty_loss()
        strategy._before_forward()
        strategy.mb_output = strategy.forward()
        strategy._after_forward()
        strategy.loss = strategy.loss + strategy.criterion()
        strategy._before_backward()
        (strategy.loss * len(strategy.mb_y) / len(whole_batch[1])).backward()
    strategy.mbatch, strategy.loss = whole_batch, loss


@pytest.mark.parametrize(("name", "differs"), [("herding-replay host", False), ("hfc", True)])
def test_the_mean_of_losses_of_pieces_is_something_else_for_hfc(monkeypatch, name, differs):
    kind = STRATEGIES[BY_NAME[name].name]
    monkeypatch.setattr(kind, "backward", each_piece_alone)
    other = trained(name)
    monkeypatch.undo()
    apart = distance(whole(name)["weights"], other["weights"])
    assert apart > 1e-3 if differs else apart < bound(name)


@pytest.mark.parametrize("name", ["hfc", "podnet hfc", "foster hfc", "dytox host"])
def test_activations_are_kept_for_one_piece_at_a_time(name):
    """As seen by the first block of the model, whenever it runs with gradients."""
    case = BY_NAME[name]
    seed()
    strategy = build(case, train_mb_size=BATCH, micro_batch=PIECE)
    met = []

    def look(module, inputs):
        if torch.is_grad_enabled() and module.training:
            met.append(len(inputs[0]))

    blocks = [m for n, m in strategy.model.named_modules() if n.endswith("blocks.0")]
    assert blocks
    for block in blocks:
        block.register_forward_pre_hook(look)
    for experience in benchmark_of(per_class=5).train_stream[:2]:
        strategy.train(experience)
    assert max(met) == PIECE


def test_layers_that_depend_on_the_batch_or_draw_are_refused_by_name():
    for model, named in (
        (small_cnn(), "BatchNorm2d"),
        (vit(drop_path=0.2), "DropPath"),
        (
            vit(backbone_options=dict(embed_dim=32, num_heads=2, in_chans=1, proj_drop_rate=0.1)),
            "Dropout",
        ),
    ):
        with pytest.raises(ValueError, match=rf"HFCStrategy: micro_batch is not exact .*{named}"):
            build(BY_NAME["hfc"], model=model, micro_batch=4)


RANDOM = [
    nn.RReLU(),
    nn.AlphaDropout(0.1),
    nn.FractionalMaxPool2d(2, output_size=2),
    nn.LSTM(4, 4, num_layers=2, dropout=0.1),
    StochasticDepth(0.1, "row"),
    ops.DropBlock2d(0.1, 3),
    timm.layers.DropBlock2d(0.1),
    timm.layers.PatchDropout(0.1),
]
CALM = [
    nn.RReLU(0.2, 0.2),
    nn.Dropout(0.0),
    StochasticDepth(0.0, "row"),
    timm.layers.DropBlock2d(0.0),
    timm.layers.PatchDropout(0.0),
]


def named(layer):
    return f"{type(layer).__module__.split('.')[0]} {type(layer).__name__}"


@pytest.mark.parametrize("layer", RANDOM, ids=named)
def test_a_layer_that_draws_is_refused_by_name(layer):
    with pytest.raises(ValueError, match=rf"Mine: .* not exact with 1 \({type(layer).__name__}\)"):
        check_divisible("Mine", nn.Sequential(nn.Identity(), layer))


@pytest.mark.parametrize("layer", CALM, ids=named)
def test_a_layer_that_never_draws_is_accepted(layer):
    check_divisible("Mine", nn.Sequential(layer))


def test_a_model_that_draws_unseen_is_refused_in_the_first_divided_batch_of_a_step():
    loud = []

    def noise(module, inputs, output):
        return output + torch.randn_like(output) if loud and module.training else output

    seed()
    model = vit()
    (block,) = (m for n, m in model.named_modules() if n.endswith("blocks.0"))
    block.register_forward_hook(noise)
    strategy = build(BY_NAME["hfc"], model=model, train_mb_size=BATCH, micro_batch=PIECE)
    first, second = benchmark_of(per_class=5).train_stream[:2]
    strategy.train(first)
    loud.append("from now on")
    before = [value.clone() for value in block.parameters()]
    with pytest.raises(ValueError, match="HFCStrategy: micro_batch is not exact .* draws random"):
        strategy.train(second)
    assert all(map(torch.equal, block.parameters(), before))  # no update


@pytest.mark.parametrize("given", [0, -1])
def test_a_piece_has_at_least_one_image(given):
    with pytest.raises(ValueError, match="micro_batch must be a whole number of 1 or more"):
        build(BY_NAME["hfc"], micro_batch=given)


def test_a_frozen_backbone_may_have_batch_norm():
    seed()
    strategy = build(BY_NAME["frozen-replay host"], model=small_cnn(), micro_batch=4)
    before = {name: value.clone() for name, value in strategy.model.named_buffers()}
    strategy.train(benchmark_of().train_stream[0])
    after = dict(strategy.model.named_buffers())
    statistics = [name for name in before if "running" in name]
    assert statistics and all(torch.equal(before[name], after[name]) for name in statistics)
