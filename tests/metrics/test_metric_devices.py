"""On a pretended CUDA device, where no tensor of the host may meet one of the device."""

import sys

import pytest
import torch
from pretended_cuda import PretendedCuda
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from avalanche_hfc.metrics import accuracy, evaluate, forgetting, forgetting_heterogeneity
from avalanche_hfc.metrics.plugin_metrics import StepMetric

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


def test_a_device_asked_for_is_used_and_the_model_s_own_otherwise(cuda_state):
    with PretendedCuda():
        asked, own, none = Linear(), Linear(CUDA), Linear()
        evaluate(asked, DATA, STEPS, device="cuda:0")
        evaluate(own, DATA, STEPS)
        evaluate(none, DATA, STEPS)  # no parameter, no wish
    assert (asked.met, own.met, none.met) == ({CUDA}, {CUDA}, {torch.device("cpu")})


@pytest.mark.parametrize("class_means", [None, MEANS])
def test_a_pass_waits_for_the_device_no_oftener_with_more_batches(class_means, cuda_state):
    waits = []
    for batch_size in (7, 1):
        with PretendedCuda() as cuda:
            model = Linear(CUDA)
            evaluate(model, DATA, STEPS, class_means=class_means, batch_size=batch_size)
        waits.append((cuda.host_reads, cuda.copies_waited_for))
    assert waits[0] == waits[1]


def test_the_random_state_of_the_device_is_put_back(cuda_state):
    class Draws(Linear):
        def embed(self, images):
            cuda_state[0] = "after"
            return super().embed(images)

    with PretendedCuda():
        evaluate(Draws(CUDA), DATA, STEPS)
        assert cuda_state == ["before"]
    evaluate(Draws("cpu"), DATA, STEPS)
    assert cuda_state == ["after"]  # the state of a device not in use is left alone


@pytest.mark.parametrize(("device", "pinned"), [("cpu", False), (CUDA, True)])
def test_memory_is_pinned_for_cuda_only(device, pinned, cuda_state, monkeypatch):
    class Watched(DataLoader):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            seen.append(self.pin_memory)

    seen = []
    monkeypatch.setattr(sys.modules["avalanche_hfc.metrics.evaluation"], "DataLoader", Watched)
    with PretendedCuda():
        evaluate(Linear(device), DATA, STEPS)
    assert seen == [pinned]


def test_the_plugin_metrics_count_on_cuda_and_keep_their_counts_on_the_host():
    class Stream:
        name = "test"

    class Experience:
        current_experience, classes_in_this_experience, origin_stream = 0, [0, 3, 2], Stream

    class Clock:
        train_iterations = 17

    class Strategy:
        device, experience, clock = CUDA, Experience, Clock

    class Last(StepMetric):
        name = "Last"

        def number(self, counts, steps):
            assert {
                t.device.type
                for t in (counts[-1].confusion, counts[-1].total, counts[-1].gradient_sum)
            } == {"cpu"}
            return accuracy(counts[-1])

    metric = Last()
    metric.before_training_exp(Strategy)
    with PretendedCuda():
        metric.before_eval(Strategy)
        for rows in (slice(0, 4), slice(4, 7)):
            Strategy.mb_y, Strategy.mb_output = TARGETS[rows].to(CUDA), IMAGES[rows].to(CUDA)
            metric.after_eval_iteration(Strategy)
        [value] = metric.after_eval(Strategy)
    competing = IMAGES.index_fill(1, torch.tensor([1]), -100.0)
    assert value.value == (competing.argmax(1) == TARGETS).double().mean() and value.x_plot == 17
