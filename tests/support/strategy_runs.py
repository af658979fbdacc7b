"""Small class-incremental runs: six digits in three steps, small networks, and what a run leaves
behind.
"""

from functools import cache

import numpy as np
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin
from sklearn.datasets import load_digits
from timm.models.resnet import BasicBlock
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_hfc import HFCStrategy, TSAViT
from avalanche_hfc.models import GrowingLinear
from avalanche_hfc.models.resnet import _ResNet
from avalanche_hfc.plugins import HerdingReplayPlugin

ORDER = [4, 1, 5, 0, 2, 3]  # heads of 5, 6, 6 columns: some of them not trained yet
CLASSES = [[1, 4], [0, 5], [2, 3]]
SMALL_VIT = dict(
    image_size=8,
    patch_size=4,
    msa_blocks=1,
    backbone_options=dict(embed_dim=32, num_heads=2, in_chans=1),
)


@cache
def digit_tensors(num_classes, per_class, skip=0):
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 8 - 1, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(labels)
    rows = torch.stack(
        [(y == c).nonzero()[skip : skip + per_class, 0] for c in range(num_classes)], dim=1
    ).flatten()
    return x[rows], y[rows]


def data_of(x, y):
    data = TensorDataset(x, y)
    data.targets = y.tolist()
    return as_classification_dataset(data)


def jitter(image):
    """Draws from torch and numpy. Not from python's generator: the type checker of the tests draws
    from it, too.
    """
    return image * float(np.random.uniform(0.8, 1.2)) + 0.1 * torch.randn(image.shape)


def benchmark_of(
    *, per_class=6, order=ORDER, num_steps=3, train_transform=None, eval_transform=None, **options
):
    train, test = (data_of(*digit_tensors(len(order), per_class, skip)) for skip in (0, 60))
    return nc_benchmark(
        train,
        test,
        n_experiences=num_steps,
        task_labels=False,
        shuffle=False,
        fixed_class_order=order,
        train_transform=train_transform,
        eval_transform=eval_transform,
        **options,
    )


def mlp(head="incremental", *, dropout=0.0, num_classes=6, width=16):
    heads = {
        "incremental": IncrementalClassifier,
        "growing": GrowingLinear,
        "fixed": lambda width: nn.Linear(width, num_classes),
    }
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Dropout(dropout))
    return nn.Sequential(body, heads[head](width))


class SmallResNet(_ResNet):
    """Two blocks of one kind, for grey images."""

    def __init__(self):
        super().__init__(8, last_relu=True, stage_relu=None, block_relu=True)
        self.stem = nn.Conv2d(1, 8, 3, padding=1)
        self.blocks = nn.ModuleList(BasicBlock(8, 8) for _ in range(2))
        self.head = GrowingLinear(8)

    def _stem(self, x):
        return self.stem(x)

    def _blocks(self):
        return [*self.blocks]

    def _stage_ends(self):
        return (1, 1, 2, 2)


def vit(**options):
    return TSAViT("vit_tiny_patch16_224", **(SMALL_VIT | options))


def hfc(model, *, optimizer=None, plugins=(), evaluator=None, **options):
    defaults = dict(mem_size=12, train_mb_size=8, train_epochs=2, eval_mb_size=64)
    return HFCStrategy(
        model=model,
        optimizer=optimizer or torch.optim.AdamW(model.parameters(), lr=3e-3),
        plugins=list(plugins),
        evaluator=evaluator or EvaluationPlugin(accuracy_metrics(stream=True), loggers=[]),
        **(defaults | options),
    )


def train(strategy, experiences, **options):
    for experience in experiences:
        strategy.train(experience, **options)
    return strategy


def run(model=mlp, *, seed=1, experiences=None, train_options=None, **options):
    """A whole run under one seed."""
    torch.manual_seed(seed)
    strategy = hfc(model(), **options)
    return train(strategy, experiences or benchmark_of().train_stream, **(train_options or {}))


def herding_of(strategy):
    return next(plugin for plugin in strategy.plugins if isinstance(plugin, HerdingReplayPlugin))


def left_by(strategy):
    """Everything a later step depends on, by name."""
    left = {f"model.{name}": value for name, value in strategy.model.state_dict().items()}
    left["exemplars"] = herding_of(strategy).memory.positions()
    optimizer = strategy.optimizer.state_dict()
    for index, state in optimizer["state"].items():
        left |= {
            f"optimizer.{index}.{name}": torch.as_tensor(value) for name, value in state.items()
        }
    for index, group in enumerate(optimizer["param_groups"]):
        left |= {
            f"group.{index}.lr": torch.tensor(group["lr"]),
            f"group.{index}.params": torch.tensor(group["params"]),
        }
    return {name: value.clone() for name, value in left.items()}


def differing(left, right):
    """Names whose values are not equal in all bits."""
    return sorted(
        n
        for n in left.keys() | right.keys()
        if n not in left or n not in right or not torch.equal(left[n], right[n])
    )


def test_images(benchmark):
    parts = [
        (x, y) for experience in benchmark.test_stream for x, y, *_ in experience.dataset.eval()
    ]
    return torch.stack([x for x, _ in parts]), torch.tensor([y for _, y in parts])


test_images.__test__ = False


class At(SupervisedPlugin):
    """Calls `act(strategy)` at one event, or several."""

    def __init__(self, events, act):
        super().__init__()
        for event in [events] if isinstance(events, str) else events:
            setattr(self, event, lambda strategy, event=event, **kwargs: act(strategy))
