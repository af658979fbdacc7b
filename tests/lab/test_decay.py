"""Weight decay on all parameters, or on all but norms and biases: in the main phase, for what has
grown, and in later phases.
"""

import pytest
import torch
from avalanche.training.plugins import SupervisedPlugin
from timm.optim import param_groups_weight_decay
from torch import nn

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.build import build, build_model, build_optimizer


def by_name(optimizer, model):
    """Name -> weight decay of every parameter; each is in one group."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    pairs = [
        (names[id(parameter)], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    ]
    assert len(dict(pairs)) == len(pairs) == len(names)
    return dict(pairs)


def norms_and_biases(model):
    """The names of all parameters of norms, of all biases, and of the gates of GPSA, which are one
    number for each head.
    """
    norms = {
        f"{key}.{name}"
        for key, module in model.named_modules()
        if isinstance(module, nn.LayerNorm)
        for name in ("weight", "bias")
    }
    return {
        name
        for name, _ in model.named_parameters()
        if name in norms or name.endswith((".bias", ".gating_param"))
    }


def test_dytox_has_the_weight_decay_of_timms_rule():
    own = recipe("cifar100-b0-t10-dytox-convit@paper")
    model = build_model(own, device="meta")
    decay = by_name(build_optimizer(own.train, model), model)
    assert {name for name, value in decay.items() if value == 0} == norms_and_biases(model)
    timms = by_name(torch.optim.AdamW(param_groups_weight_decay(model, 1e-6)), model)
    assert (
        decay == timms
        and decay["encoder.pos_embed"] == 1e-6
        and decay["encoder.blocks.0.attn.gating_param"] == 0
    )


class Phases(SupervisedPlugin):
    def __init__(self):
        super().__init__()
        self.seen = []

    def before_phase_epoch(self, strategy, **kwargs):
        trained = [
            (p, group["weight_decay"])
            for group in strategy.phase_running.optimizer.param_groups
            for p in group["params"]
        ]
        names = {id(parameter): name for name, parameter in strategy.model.named_parameters()}
        self.seen.append({names[id(parameter)]: decay for parameter, decay in trained})


@pytest.mark.parametrize("factor", ["1", "5"])
def test_tokens_heads_and_norms_that_grow_join_the_group_with_their_decay_and_rate(factor):
    given = {
        "decay_all": "false",
        "head_lr_factor": factor,
        "weight_decay": "0.3",
        "epochs": "1",
        "tune_epochs": "1",
        "batch_size": "128",
    }
    own = override(recipe("digits-b0-t5-dytox-convit@demo"), given)
    phases = Phases()
    built = build(own, 0, plugins=(phases,))
    model, optimizer = built.strategy.model, built.strategy.optimizer
    for step, experience in enumerate(built.benchmark.train_stream[:3]):
        built.strategy.train(experience)
        decay = by_name(optimizer, model)
        assert (
            len(decay) > 40
            and f"head.tokens.{step}" in decay
            and (step == 0 or "head.divergence.linear.weight" in decay)
        )
        assert decay == {name: 0 if name in norms_and_biases(model) else 0.3 for name in decay}
        scales = {
            id(parameter): group["scale"]
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        assert all(
            scales[id(p)] == (float(factor) if name.startswith("head.") else 1)
            for name, p in model.named_parameters()
        )
    assert len(phases.seen) == 2 and "head.tokens.0" in phases.seen[0]
    for decay in phases.seen:
        assert decay == {name: 0 if name in norms_and_biases(model) else 0.3 for name in decay}


@pytest.mark.parametrize("row", ["hfc", "bic", "foster", "podnet", "joint"])
def test_a_head_that_a_method_puts_in_and_rows_that_grow_have_their_decay(row):
    given = {
        "decay_all": "false",
        "head_lr_factor": "5",
        "weight_decay": "0.3",
        "decay_by_step": "true",
        "epochs": "1",
        "batch_size": "96",
    }
    steps = 1 if row == "joint" else 2
    own = override(recipe(f"digits-b0-t{1 if row == 'joint' else 5}-{row}@demo"), given)
    built = build(own, 0)
    for experience in built.benchmark.train_stream[:steps]:
        built.strategy.train(experience)
    model = built.strategy.model
    for group in built.strategy.optimizer.param_groups:
        for parameter in group["params"]:
            assert group["weight_decay"] == (
                0 if parameter.ndim < 2 else pytest.approx(0.3 * own.data.total_steps / steps)
            )
    held = {
        id(parameter)
        for group in built.strategy.optimizer.param_groups
        for parameter in group["params"]
    }
    assert {id(parameter) for parameter in model.parameters()} <= held
