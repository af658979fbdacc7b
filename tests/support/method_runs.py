"""Small runs of the methods: six digits in three steps, and what moved."""

import torch
from strategy_runs import SMALL_VIT, benchmark_of, train

from avalanche_hfc.lab.options import WITHOUT_MEMORY
from avalanche_hfc.models import DyToxModel, TSAViT, ViTEncoder
from avalanche_hfc.strategies import STRATEGIES


def build(name, *, model=None, lr=0.05, optimizer=None, **options):
    torch.manual_seed(5)
    if model is None:
        small = dict(SMALL_VIT)
        model = (
            DyToxModel(ViTEncoder("vit_tiny_patch16_224", **small))
            if name == "dytox"
            else TSAViT("vit_tiny_patch16_224", **small)
        )
    memory = {} if name in WITHOUT_MEMORY else {"mem_size": 12}
    optimizer = (
        optimizer(model.parameters()) if optimizer else torch.optim.SGD(model.parameters(), lr=lr)
    )
    sizes = dict(train_mb_size=12, train_epochs=2, eval_mb_size=64, evaluator=None)
    return STRATEGIES[name](model=model, optimizer=optimizer, **{**memory, **sizes, **options})


def weights(strategy):
    return {name: value.clone() for name, value in strategy.model.state_dict().items()}


def moved(before, after):
    return {
        name
        for name in before
        if name in after
        and before[name].shape == after[name].shape
        and not before[name].equal(after[name])
    }


def steps_of(strategy, num_steps, **benchmark_options):
    return train(strategy, benchmark_of(**benchmark_options).train_stream[:num_steps])
