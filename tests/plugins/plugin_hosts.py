"""Small digits, a small network, and every host in which GFC and GRD act, by name."""

import copy
from functools import cache

import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import EvaluationPlugin, SupervisedPlugin
from avalanche.training.supervised import DER, ER_ACE, EWC, Cumulative, LwF, Naive, Replay
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_hfc import compat
from avalanche_hfc.models import GrowingLinear
from avalanche_hfc.strategies import IncrementalTemplate

ORDER = [3, 7, 0, 9, 4, 1, 8, 2, 6, 5]
SIZES = [4, 3, 3]
CLASSES = [[3, 7, 0, 9], [4, 1, 8], [2, 6, 5]]
STEPS = [
    [0, -1, -1, 0, -1, -1, -1, 0, -1, 0],
    [0, 1, -1, 0, 1, -1, -1, 0, 1, 0],
    [0, 1, 2, 0, 1, 2, 2, 0, 1, 0],
]  # by column
PER_CLASS = 12
MEMORY_ROWS = 10
DER_ALPHA, DER_BETA = 0.3, 0.7


@cache
def digit_tensors(per_class=PER_CLASS):
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels)
    rows = torch.stack(
        [(y == c).nonzero()[:per_class, 0] for c in range(10)], dim=1
    ).flatten()  # classes take turns
    return x[rows], y[rows]


def digit_data(x, y):
    data = TensorDataset(x, y)
    data.targets = y.tolist()
    return as_classification_dataset(data)


def digits_benchmark(**options):
    data = digit_data(*digit_tensors())
    sizes = dict(enumerate(SIZES))
    return nc_benchmark(
        data,
        data,
        n_experiences=3,
        task_labels=False,
        shuffle=False,
        fixed_class_order=ORDER,
        per_exp_classes=sizes,
        **options,
    )


def network(head="incremental", *, body=None, seed=0):
    torch.manual_seed(seed)
    heads = {
        "incremental": IncrementalClassifier,
        "growing": GrowingLinear,
        "fixed": lambda width: nn.Linear(width, 10),
    }
    return nn.Sequential(body or nn.Sequential(nn.Linear(64, 32), nn.ReLU()), heads[head](32))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def common(model, plugins, epochs):
    return dict(
        optimizer=sgd(model),
        train_mb_size=32,
        train_epochs=epochs,
        eval_mb_size=64,
        plugins=list(plugins),
        evaluator=EvaluationPlugin(),
    )


def of_kind(kind, head="incremental", **extras):
    def build(plugins, epochs=2, model=None, **options):
        model = model or network(head)
        return kind(model=model, **(common(model, plugins, epochs) | extras | options))

    return build


def icarl(plugins, epochs=2, model=None, **options):
    model = model or network()
    extras = {"memory_size": 40, "buffer_transform": None, "fixed_memory": True}
    return compat.RepairedICaRL(
        feature_extractor=model[0],
        classifier=model[1],
        **(common(model, plugins, epochs) | extras | options),
    )


def naive_with_bic(plugins, epochs=2, model=None, lamb=-1, bic_first=False, **options):
    bic = compat.RepairedBiCPlugin(**BIC, lamb=lamb)
    return of_kind(Naive, **CE)(
        [bic, *plugins] if bic_first else [*plugins, bic], epochs, model, **options
    )


CE = {"criterion": nn.CrossEntropyLoss()}
BIC = {"mem_size": 60, "val_percentage": 0.2, "stage_2_epochs": 2}
DARK = {"mem_size": 40, "batch_size_mem": MEMORY_ROWS, "alpha": DER_ALPHA, "beta": DER_BETA}
ACE = {"mem_size": 40, "batch_size_mem": MEMORY_ROWS}

HOSTS = {
    "naive": of_kind(Naive, **CE),
    "naive-growing": of_kind(Naive, "growing", **CE),
    "replay": of_kind(Replay, **CE, mem_size=40),
    "lwf": of_kind(LwF, **CE, alpha=1.0, temperature=2.0),
    "ewc": of_kind(EWC, **CE, ewc_lambda=1.0),
    "cumulative": of_kind(Cumulative, **CE),
    "bic": of_kind(compat.RepairedBiC, **CE, **BIC),
    "naive+bic": naive_with_bic,
    "icarl": icarl,
    "der": of_kind(compat.RepairedDER, **DARK),
    "der-shipped": of_kind(DER, "fixed", **DARK),
    "er_ace": of_kind(compat.RepairedER_ACE, **ACE),
    "er_ace-shipped": of_kind(ER_ACE, **ACE),
    "ours": of_kind(IncrementalTemplate),
}


def train(strategy, experiences, seed=1):
    torch.manual_seed(seed)
    for experience in experiences:
        strategy.train(experience)
    return strategy


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(left, right):
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


class Watch(SupervisedPlugin):
    """Calls `look(strategy)` at one event and keeps what it returns. `step` limits it to one
    step.
    """

    def __init__(self, event, look, step=None):
        super().__init__()
        self.seen = []

        def callback(strategy, **kwargs):
            if step in (None, strategy.clock.train_exp_counter):
                self.seen.append(look(strategy))

        setattr(self, event, callback)


def snapshot(model):
    return copy.deepcopy(model).eval()
