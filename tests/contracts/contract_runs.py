"""Small runs of any entry: six digits in three steps, what a run leaves behind, and what was met on
the way.
"""

import io
import random
from functools import cache
from typing import Any

import numpy as np
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin, LRSchedulerPlugin, SupervisedPlugin
from contract_entries import Case
from strategy_runs import data_of, digit_tensors, jitter
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from avalanche_hfc.memory import ExemplarMemory
from avalanche_hfc.strategies import STRATEGIES

EVALUATED = (
    ".clock.total_iterations",
    "._just_validated",
)  # what Avalanche notes of an evaluation, for loggers and schedules
STEPS = ((1, 4), (0, 5), (2, 3))  # heads of 5, 6, 6 columns: some of them not trained yet
LR = 0.05
DECAY = 0.7  # of the learning rate, from epoch to epoch of a step


def benchmark_of(
    steps=STEPS,
    *,
    per_class=6,
    first_test_image=60,
    transform=jitter,
    few=(),
    relabel=None,
    dtype=torch.float32,
    change=lambda x, y: (x, y),
):
    """`few`: classes with one training image. `relabel`: id of each class in the benchmark.
    `change(x, y)` acts on the training data. `first_test_image` of each class; those from 60 on are
    by other writers.
    """
    order = [class_id for step in steps for class_id in step]
    new_id = torch.tensor([(relabel or {}).get(c, c) for c in range(10)])
    parts = []
    for num_images, skip in ((per_class, 0), (per_class, first_test_image)):
        x, y = digit_tensors(10, num_images, skip)
        kept = [
            i
            for i, c in enumerate(y.tolist())
            if c in order and not (skip == 0 and c in few and i >= 10)
        ]
        parts.append((x[kept], y[kept]) if skip else change(x[kept], y[kept]))
    train_data, test_data = (data_of(x.to(dtype), new_id[y]) for x, y in parts)
    return nc_benchmark(
        train_data,
        test_data,
        n_experiences=len(steps),
        task_labels=False,
        shuffle=False,
        fixed_class_order=new_id[order].tolist(),
        per_exp_classes={i: len(step) for i, step in enumerate(steps)},
        train_transform=transform,
        eval_transform=None,
    )


def build(
    case, *, model=None, optimizer=None, plugins=(), own_plugins=None, evaluator=None, **options
):
    """A fresh strategy of this case, as a user would build it, with a schedule. `own_plugins`: a
    list given as it is.
    """
    model = case.entry.model() if model is None else model
    optimizer = SGD(model.parameters(), lr=LR, momentum=0.9) if optimizer is None else optimizer
    schedule = LRSchedulerPlugin(StepLR(optimizer, step_size=1, gamma=DECAY))
    own = dict(train_mb_size=12, train_epochs=case.entry.num_epochs, eval_mb_size=64)
    own |= {} if case.entry.mem_size is None else {"mem_size": case.entry.mem_size}
    own |= {} if case.losses is None else {"losses": case.losses}
    return STRATEGIES[case.name](
        model=model,
        optimizer=optimizer,
        plugins=[*plugins, schedule] if own_plugins is None else own_plugins,
        evaluator=evaluator or EvaluationPlugin(accuracy_metrics(stream=True), loggers=[]),
        **(own | case.entry.options | options),
    )


def seed(number=3):
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def train(strategy, experiences):
    """Step after step; for a row that is trained once, all at once."""
    for experience in (
        [experiences] if getattr(strategy, "trains_on_stream", False) else experiences
    ):
        strategy.train(experience)
    return strategy


def run(case, benchmark=None, **options):
    """A whole run under one seed."""
    benchmark = benchmark or benchmark_of()
    seed()
    return train(build(case, **options), benchmark.train_stream)


# What a run leaves behind


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Nested dicts and lists as one dict from path to leaf."""
    if isinstance(value, dict):
        return {k: v for key, part in value.items() for k, v in flat(part, f"{name}.{key}").items()}
    if isinstance(value, list | tuple):
        return {
            k: v for key, part in enumerate(value) for k, v in flat(part, f"{name}.{key}").items()
        }
    return {name: value.clone() if isinstance(value, torch.Tensor) else value}


def left_by(strategy):
    """Everything a later step depends on, by name. Metrics are for the reader; python's generator
    is the type checker's as well.
    """
    if hasattr(strategy, "state_dict"):
        state = dict(strategy.state_dict())
        state["random"] = {kind: own for kind, own in state["random"].items() if kind != "python"}
        state["plugins"] = [own["state"] for own in state["plugins"] if own["state"] is not None]
        return flat({name: part for name, part in state.items() if name != "metrics"})
    return flat(
        {"model": dict(strategy.model.state_dict()), "optimizer": strategy.optimizer.state_dict()}
    )


def differing(left, right, *, but=()):
    """Names whose values are not equal in all bits."""

    def equal(a, b):
        return (
            torch.equal(a, b)
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
            else a == b
        )

    names = [n for n in left.keys() | right.keys() if not n.endswith(tuple(but))]
    return sorted(
        n for n in names if n not in left or n not in right or not equal(left[n], right[n])
    )


def not_finite(strategy):
    """Names of weights and buffers with a value that is not finite."""
    return [
        name for name, value in strategy.model.state_dict().items() if not value.isfinite().all()
    ]


def exemplars(strategy):
    """The memory of one of ours."""
    (memory,) = [
        p.memory for p in strategy.plugins if isinstance(getattr(p, "memory", None), ExemplarMemory)
    ]
    return memory


def accuracy(strategy, experience):
    return strategy.eval(experience)[
        f"Top1_Acc_Stream/eval_phase/{experience.origin_stream.name}_stream/Task000"
    ]


def logits_of(strategy, experiences):
    """Logits and labels of an evaluation, as the strategy gives them."""
    met = []
    watch = At(
        "after_eval_forward", lambda s: met.append((s.mb_output.detach().clone(), s.mb_y.clone()))
    )
    strategy.plugins.append(watch)
    for experience in experiences:
        strategy.eval(experience)
    strategy.plugins.remove(watch)
    width = max(logits.shape[1] for logits, _ in met)
    padded = [
        torch.nn.functional.pad(logits, (0, width - logits.shape[1]), value=-1000.0)
        for logits, _ in met
    ]
    return torch.cat(padded), torch.cat([labels for _, labels in met])


def written(state):
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def read(content):
    return torch.load(io.BytesIO(content), weights_only=True)


class At(SupervisedPlugin):
    """Calls `act(strategy)` at one event, or several."""

    def __init__(self, events, act):
        super().__init__()
        for event in [events] if isinstance(events, str) else events:
            setattr(self, event, lambda strategy, event=event, **kwargs: act(strategy))


@cache
def usual(case: Case):
    """The run that most checks compare with: what it left after each step."""
    benchmark = benchmark_of()
    seed()
    strategy, left = build(case), []
    for experience in benchmark.train_stream:
        strategy.train(experience)
        left.append(left_by(strategy))
    return left
