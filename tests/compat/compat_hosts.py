"""A small network and every host of `avalanche_hfc.compat` around it, shipped or repaired."""

import sys

import torch
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin
from avalanche.training.supervised import DER, ER_ACE, BiC, ICaRL, LwF, Naive
from torch import nn

from avalanche_hfc.models import GrowingLinear

ORDER = [3, 1, 5, 0, 2, 4]  # heads of 4, 6, 6 columns: some of them not trained yet
STEPS = [[3, 1], [5, 0], [2, 4]]


def head_of(kind):
    return {
        "incremental": IncrementalClassifier,
        "growing": GrowingLinear,
        "fixed": lambda width: nn.Linear(width, 6),
    }[kind](32)


def network(kind="incremental", *, norm=False, seed=0):
    torch.manual_seed(seed)
    body = nn.Sequential(
        nn.Linear(64, 32), nn.BatchNorm1d(32) if norm else nn.Identity(), nn.ReLU()
    )
    return nn.Sequential(body, head_of(kind))


EXTRAS = {
    ICaRL: {"memory_size": 60, "buffer_transform": None, "fixed_memory": True},
    DER: {"mem_size": 60, "batch_size_mem": 20, "alpha": 0.5},
    BiC: {
        "criterion": nn.CrossEntropyLoss(),
        "mem_size": 60,
        "val_percentage": 0.2,
        "stage_2_epochs": 5,
    },
    ER_ACE: {"mem_size": 60, "batch_size_mem": 20},
    LwF: {"criterion": nn.CrossEntropyLoss(), "alpha": 1.0, "temperature": 2.0},
    Naive: {"criterion": nn.CrossEntropyLoss()},
}


def strategy_of(kind, model, *, plugins=None, epochs=1, **options):
    extras = next(extras for base, extras in EXTRAS.items() if issubclass(kind, base))
    parts = {"model": model}
    if issubclass(kind, ICaRL):
        parts = {"feature_extractor": model[0], "classifier": model[1]}
    return kind(
        **parts,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        train_mb_size=20,
        train_epochs=epochs,
        eval_mb_size=60,
        plugins=plugins,
        evaluator=EvaluationPlugin(accuracy_metrics(stream=True), loggers=[]),
        **(extras | options),
    )


def train(strategy, experiences, seed=1):
    torch.manual_seed(seed)
    for experience in experiences:
        strategy.train(experience)
    return strategy


def accuracy(strategy, stream):
    (value,) = [v for k, v in strategy.eval(stream).items() if k.startswith("Top1_Acc_Stream/eval")]
    return value


def weights(strategy):
    return {name: value.clone() for name, value in strategy.model.state_dict().items()}


def same(left, right):
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


def global_names():
    """Every attribute of every Avalanche and torch.optim module, and of the classes in them, by
    identity.
    """
    names = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] == "avalanche" or module_name.startswith("torch.optim"):
            for name, value in list(vars(module).items()):
                names[module_name, name] = value
                if isinstance(value, type) and value.__module__ == module_name:
                    names.update(
                        {
                            (module_name, name, attribute): member
                            for attribute, member in list(vars(value).items())
                        }
                    )
    return names


class Recorder(SupervisedPlugin):
    """Calls `look(strategy)` before each backward pass of the last step and keeps what it
    returns.
    """

    def __init__(self, look):
        super().__init__()
        self.look, self.seen = look, []

    def before_backward(self, strategy, **kwargs):
        if strategy.experience.current_experience == 2:
            self.seen.append(self.look(strategy))


def buffers(module):
    return {name: value.clone() for name, value in module.named_buffers()}
