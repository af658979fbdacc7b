"""Checkpointed activations change no bit of a training, and free what is inside a block."""

import weakref

import pytest
import torch
from contract_ranks import BATCH, BY_NAME, trained
from contract_runs import benchmark_of, build, seed
from strategy_runs import At, vit
from torch import nn

NAMES = ["hfc", "podnet hfc", "afc host", "foster hfc", "dytox host", "icarl hfc"]


@pytest.mark.parametrize(
    ("name", "model"),
    [*((name, "vit") for name in NAMES), ("hfc", "resnet"), ("podnet host", "resnet")],
)
def test_the_weights_and_statistics_are_those_of_a_training_that_keeps_all(name, model):
    kept, recomputed = (
        trained(name, model=model, checkpoint_activations=asked) for asked in (False, True)
    )
    assert kept["weights"].keys() == recomputed["weights"].keys()
    for part, value in kept["weights"].items():
        assert torch.equal(value, recomputed["weights"][part]), part
    assert kept["exemplars"] == recomputed["exemplars"]


def drop_path_trained(**options):
    seed()
    strategy = build(BY_NAME["hfc"], model=vit(drop_path=0.4), train_mb_size=BATCH, **options)
    for experience in benchmark_of(per_class=5).train_stream[:2]:
        strategy.train(experience)
    return strategy.model.state_dict()


def test_what_a_layer_draws_is_drawn_once():
    kept, recomputed = drop_path_trained(), drop_path_trained(checkpoint_activations=True)
    assert all(torch.equal(kept[name], recomputed[name]) for name in kept)


@pytest.mark.parametrize("asked", [False, True])
def test_nothing_inside_a_block_is_alive_before_the_backward_pass(asked):
    seed()
    outputs, alive = [], []

    def look(strategy):
        alive.append([output() is not None for output in outputs])
        outputs.clear()

    strategy = build(
        BY_NAME["hfc"],
        train_mb_size=BATCH,
        checkpoint_activations=asked,
        plugins=[At("before_backward", look), At("after_backward", lambda s: outputs.clear())],
    )
    layers = [m for n, m in strategy.model.named_modules() if n.endswith("blocks.0.mlp.fc1")]
    for layer in layers:
        layer.register_forward_hook(lambda *args: outputs.append(weakref.ref(args[-1])))
    strategy.train(benchmark_of(per_class=5).train_stream[0])
    assert layers and alive and all(alive)
    assert {any(each) for each in alive} == {not asked}


def test_a_model_whose_blocks_are_not_known_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    with pytest.raises(ValueError, match="needs a model of avalanche_hfc.models.*got a Sequential"):
        build(BY_NAME["finetune host"], model=model, checkpoint_activations=True)
