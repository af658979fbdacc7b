"""On a pretended CUDA device, where no tensor of the host may meet one of the device."""

import pytest
import torch
from pretended_cuda import PretendedCuda
from torch import nn
from torch.utils.data import TensorDataset

from avalanche_hfc.metrics import evaluate, forgetting, forgetting_heterogeneity

STEPS = torch.tensor([1, -1, 0, 0])
TARGETS = torch.tensor([0, 2, 3, 3, 0, 2, 2])
IMAGES = torch.randn(7, 4, generator=torch.Generator().manual_seed(4))
DATA = TensorDataset(IMAGES, TARGETS)
MEANS = {3: torch.tensor([0.0, 0, 1, 1]), 0: torch.tensor([1.0, 0, 0, 0])}
CUDA = torch.device("cuda:0")

pytestmark = pytest.mark.filterwarnings(
    "ignore:'pin_memory' argument is set as true but no accelerator is found"
)


class Linear(nn.Module):
    """Embedding and head without a layer of torch's own. Says on which device each image came."""

    def __init__(self, device=None):
        super().__init__()
        if device is not None:
            self.weight = nn.Parameter(torch.eye(4).to(device))
        self.met = set()

    def embed(self, images):
        self.met.add(images.device)
        return images

    def classify(self, embedding):
        return embedding @ self.weight if hasattr(self, "weight") else embedding

    def forward(self, images):
        return self.classify(self.embed(images))


@pytest.fixture
def cuda_state(monkeypatch):
    """The random state of the pretended device, in a list."""
    state = ["before"]
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: state[0])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda new, device: state.__setitem__(0, new))
    return state


@pytest.mark.parametrize("given", [None, "cuda:0", CUDA])
@pytest.mark.parametrize("class_means", [None, MEANS])
def test_counts_of_a_model_on_cuda_are_those_of_the_host(given, class_means, cuda_state):
    expected = evaluate(Linear("cpu"), DATA, STEPS, class_means=class_means, batch_size=3)
    with PretendedCuda():
        model = Linear(CUDA)
        for steps in (STEPS, STEPS.to(CUDA)):
            counts = evaluate(
                model, DATA, steps, class_means=class_means, batch_size=3, device=given
            )
            for name in (
                "confusion",
                "total",
                "gradient_sum",
                "gradient_square_sum",
                *(["correct_nme"] if class_means else []),
            ):
                assert getattr(counts, name).device.type == "cpu"
                assert getattr(counts, name).tolist() == getattr(expected, name).tolist()
            assert (
                forgetting_heterogeneity(counts, steps)
                == forgetting_heterogeneity(expected, STEPS)
                > 0
            )
            assert forgetting([expected, counts], steps) == 0
    assert model.met == {CUDA} and 0 < expected.correct.sum() < 7
