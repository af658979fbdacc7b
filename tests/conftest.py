import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test processes on two cores

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("ours", deadline=None, max_examples=40, derandomize=True, print_blob=True)
settings.load_profile("ours")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
