"""Six digits in three steps, and the check after every test that nothing global was left
patched.
"""

import pytest
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from compat_hosts import ORDER, global_names
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset


@pytest.fixture(scope="module")
def images():
    digits = load_digits(n_class=6)
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    train = torch.cat([(y == c).nonzero()[:60, 0] for c in range(6)])
    test = torch.cat([(y == c).nonzero()[100:160, 0] for c in range(6)])
    return [(x[rows], y[rows]) for rows in (train, test)]


@pytest.fixture
def benchmark(images):
    train, test = ((TensorDataset(x, y), y.tolist()) for x, y in images)
    sets = []
    for data, targets in (train, test):
        data.targets = targets
        sets.append(as_classification_dataset(data))
    return nc_benchmark(
        *sets, n_experiences=3, task_labels=False, fixed_class_order=ORDER, shuffle=False
    )


@pytest.fixture(autouse=True)
def nothing_global_is_left_patched():
    torch.optim.SGD(
        [nn.Parameter(torch.zeros(1))], lr=1
    )  # torch itself wraps `step` when the first one is made
    before = global_names()
    yield
    after = global_names()
    changed = [key for key in before if key not in after or after[key] is not before[key]]
    added = [key for key in after.keys() - before.keys() if key[0] == "torch.optim"]
    assert not changed and not added
