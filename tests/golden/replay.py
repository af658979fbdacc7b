"""Replays a recording through one of our strategies, and compares every update.

What was drawn at random is put in: first weights and new rows, the centres of k-means, and
`torch.randperm`, from which every sampler takes the order of an epoch. The strategy itself is as
users have it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import as_classification_dataset
from avalanche.core import SupervisedPlugin
from recordings import Recording
from torch.utils.data import TensorDataset

from avalanche_hfc.models import cosine

LOSS, WEIGHT = 1e-9, 1e-8  # relative; the recordings agree to 1e-11 on the machine that made them
NEAREST = 1e-7  # of distances to class means: the authors add 1e-8 to the norms
SMALLEST = 1e-10  # of a checksum: below it, a gradient is the rounding of 0


@dataclass
class Replay:
    """How a recording is replayed.

    Attributes:
        build: Makes the strategy from plugins and an evaluator.
        put_in: Copies first weights or new rows into the strategy, when a phase of a step begins.
        tensors: The strategy's tensors by the names of the recording.
        terms: The loss terms of the recording, from ours and the total loss.
        values: Kind of value after a step -> ours, of the strategy and the probe.
        frozen: Names of tensors whose recorded gradients reach no update.
        unordered: Phases whose order is not drawn.
    """

    build: Callable
    put_in: Callable
    tensors: Callable
    terms: Callable
    values: dict[str, Callable]
    frozen: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()
    loss: float = LOSS
    weight: float = WEIGHT


def named_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


@torch.no_grad()
def copy(tensor: torch.Tensor, values) -> None:
    """Put values in; a tensor that the optimizer has stays the same one."""
    tensor.copy_(torch.as_tensor(values).reshape(tensor.shape))


def dataset(images: torch.Tensor, labels: torch.Tensor):
    data = TensorDataset(images, labels)
    data.targets = labels.tolist()
    return as_classification_dataset(data)


def benchmark_of(recording: Recording):
    return nc_benchmark(
        dataset(*recording.train),
        dataset(*recording.test),
        n_experiences=len(recording.classes),
        task_labels=False,
        shuffle=False,
        fixed_class_order=[k for classes in recording.classes for k in classes],
        per_exp_classes={t: len(classes) for t, classes in enumerate(recording.classes)},
    )


class Follower(SupervisedPlugin):
    """Puts in what was drawn at random, and compares each update with the recorded one."""

    def __init__(self, recording: Recording, replay: Replay):
        super().__init__()
        self.recording, self.replay = recording, replay
        self.id_of = {image.numpy().tobytes(): i for i, image in enumerate(recording.train[0])}
        assert len(self.id_of) == len(recording.train[0])
        self.places: dict = {}
        self.rates: list[float] = []
        self.followed = 0
        self.worst: dict[tuple[int, str], dict[str, float]] = {}  # by step and phase

    def ids(self, data) -> list[int]:
        """The image ids of a data set."""
        return [self.id_of[data[i][0].numpy().tobytes()] for i in range(len(data))]

    # What is put in

    def order(self, size: int, **options: object) -> torch.Tensor:
        """The recorded order of the epoch that begins, as positions: takes the place of randperm."""
        strategy, step = self.strategy, self.strategy.clock.train_exp_counter
        data, key = strategy.adapted_dataset, (step, strategy.phase, self.epoch)
        if all(update.step > step for update in self.recording.updates[self.followed :]):
            key = (step, "importance", 0)  # AFC's pass over the images of the step
            if len(self.recording.orders.get(key, ())) != size:
                return torch.arange(size)  # a sampler at its end asks once more, for nothing
        elif strategy.phase_running:
            data = strategy.phase_running.data()
        assert key[1] not in self.replay.unordered, f"{key} draws an order"
        if key[:2] not in self.places:
            self.places[key[:2]] = {
                image: position for position, image in enumerate(self.ids(data))
            }
        place = self.places[key[:2]]
        orders, num_new = self.recording.orders, len(strategy.experience.dataset)
        if (*key, "replay") in orders and size != num_new:  # new and replayed are drawn apart
            copies, exemplars = Counter(), len(place) - num_new
            given = []
            for image in orders[*key, "replay"]:
                given.append(place[image] - num_new + exemplars * copies[image])
                copies[image] += 1
        else:
            given = [place[image] for image in orders[key]]
        left_out = sorted(set(range(size)) - set(given))
        assert len(given) + len(left_out) == size, f"{key}: other images are trained"
        return torch.tensor(given + left_out)

    def before_training_epoch(self, strategy, **kwargs):
        self.begin(strategy, strategy.clock.train_exp_epochs, strategy.optimizer)

    def before_phase_epoch(self, strategy, **kwargs):
        self.begin(strategy, strategy.phase_running.epoch, strategy.phase_running.optimizer)

    def begin(self, strategy, epoch: int, optimizer) -> None:
        self.strategy, self.epoch = strategy, epoch
        if epoch == 0:
            self.replay.put_in(strategy, strategy.clock.train_exp_counter, strategy.phase)
        if not getattr(optimizer, "followed", False):
            optimizer.register_step_pre_hook(self.note_rates)
            optimizer.followed = True

    def note_rates(self, optimizer, *arguments: object) -> None:
        self.rates = [group["lr"] for group in optimizer.param_groups if group["params"]]

    # What is compared

    def before_eval(self, strategy, **kwargs):
        self.correct = []

    def after_eval_iteration(self, strategy, **kwargs):
        self.correct += (strategy.mb_output.argmax(1) == strategy.mb_y).tolist()

    def after_training_iteration(self, strategy, **kwargs):
        self.compare(strategy)

    def after_phase_iteration(self, strategy, **kwargs):
        self.compare(strategy)

    def compare(self, strategy) -> None:
        number, self.followed = self.followed, self.followed + 1
        assert number < len(self.recording.updates), "more updates than recorded"
        update = self.recording.updates[number]
        where = f"update {number}, step {update.step}, {update.phase}, epoch {update.epoch}"
        place = (strategy.clock.train_exp_counter, strategy.phase, self.epoch)
        assert place == (update.step, update.phase, update.epoch), where
        terms = self.replay.terms(strategy, dict(strategy.loss_terms), update)
        assert terms.keys() == update.terms.keys(), where
        for name, term in terms.items():
            self.close(
                "loss",
                float(term.detach()),
                update.terms[name],
                self.replay.loss,
                f"{where}: {name}",
            )
        assert_same(sorted(set(self.rates)), sorted(set(update.rates)), f"{where}: rates")
        self.compare_tensors(strategy, update, where)

    def compare_tensors(self, strategy, update, where: str) -> None:
        ours, of = self.replay.tensors(strategy), self.recording.checksums
        missing = update.weights.keys() - ours.keys()
        assert not missing, f"{where}: no {sorted(missing)[:3]}"
        for name, recorded in update.weights.items():
            tensor, gradient = ours[name]
            self.close("weight", of(tensor), recorded, self.replay.weight, f"{where}: {name}")
            recorded = update.gradients.get(name, np.array(np.nan))
            if gradient is not None and not np.isnan(recorded).all():
                numbers = of(gradient)[: len(recorded)]
                tolerance = self.replay.weight if recorded.dtype == np.float64 else 1e-6
                what = f"{where}: gradient of {name}"
                self.close("gradient", numbers, recorded, tolerance, what)
            elif name not in self.replay.frozen:
                assert np.isnan(recorded).all(), f"{where}: {name} has no gradient"

    def close(self, kind: str, ours, recorded, tolerance: float, what: str) -> None:
        """Checksums of a tensor agree, relative to its norm, which stands first."""
        ours, recorded = np.atleast_1d(ours), np.atleast_1d(recorded)
        scale = max(abs(recorded[0]), SMALLEST / tolerance)
        worst = np.abs(ours - recorded).max() / scale
        assert worst <= tolerance, f"{what}: {ours} is not {recorded}, off by {worst:.1e}"
        update = self.recording.updates[self.followed - 1]
        of_phase = self.worst.setdefault((update.step, update.phase), {})
        of_phase[kind] = max(of_phase.get(kind, 0.0), float(worst))


def assert_same(ours: list[float], recorded: list[float], what: str) -> None:
    assert len(ours) == len(recorded) and np.allclose(ours, recorded, rtol=1e-12, atol=0), (
        f"{what}: {ours} are not {recorded}"
    )


def follow(recording: Recording, replay: Replay, monkeypatch) -> Follower:
    """Train all steps of a recording and compare; an AssertionError names the first difference."""
    follower = Follower(recording, replay)
    strategy = replay.build([follower])
    benchmark = benchmark_of(recording)
    positions = [i for step in benchmark.train_stream for i in follower.ids(step.dataset)]
    monkeypatch.setattr(torch, "randperm", follower.order)
    centres = [recording.arrays[name] for name in sorted(recording.arrays) if "kmeans" in name]
    if centres:
        left = iter(centres)
        monkeypatch.setattr(cosine, "k_means", lambda *_, **__: torch.as_tensor(next(left)))
    for t, step in enumerate(recording.steps):
        strategy.train(benchmark.train_stream[t])
        kept = {k: [positions[p] for p in ps] for k, ps in strategy.exemplars().items()}
        exemplars = [image for k in sorted(kept) for image in kept[k]]
        assert exemplars == step.exemplars, f"exemplars of step {t}"
        strategy.model.eval()
        for kind, value in replay.values.items():
            with torch.no_grad():
                ours = value(strategy, recording.probe).double().numpy()
            recorded = step.values[kind]
            worst = np.abs(ours[: len(recorded)] - recorded).max() / np.abs(recorded).max()
            tolerance = NEAREST if kind == "nearest" else replay.weight
            assert worst <= tolerance, f"{kind} after step {t}, off by {worst:.1e}"
        if step.accuracy is not None:
            strategy.eval(benchmark.test_stream[: t + 1])
            accuracy = np.mean(follower.correct)
            assert abs(accuracy - step.accuracy) < 1e-6, f"accuracy after step {t}: {accuracy}"
    assert follower.followed == len(recording.updates)
    return follower
