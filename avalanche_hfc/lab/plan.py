"""What a run will cost, from a few batches: two steps on a few of its images, in memory. Nothing is
written.
"""

import io
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import IO, Any, cast

import numpy as np
import torch
from avalanche.training.determinism.rng_manager import RNGManager
from avalanche.training.plugins import SupervisedPlugin
from torch import Tensor
from torch.utils.data import ConcatDataset

from avalanche_hfc._types import Strategy
from avalanche_hfc.benchmarks.scenario import Plan, SplitBenchmark, make_benchmark
from avalanche_hfc.benchmarks.sources import FileImages, Source, TensorImages
from avalanche_hfc.lab import Recipe, override
from avalanche_hfc.lab.build import build_model, build_strategy, without_weights
from avalanche_hfc.lab.data import DATA_SETS, Root, plan_of, read_source
from avalanche_hfc.lab.describe import later_epochs, phases_by_step, sizes_of
from avalanche_hfc.lab.options import CORRECTION_ROUNDS, LATER_EPOCHS
from avalanche_hfc.lab.protocol import runnable
from avalanche_hfc.lab.record import judge
from avalanche_hfc.lab.run import check_device, peak_memory

CLASSES = 4  # of the trial, two a step; they do not matter for the time
EVAL_IMAGES = 128  # a batch of `evaluate`
STORED = {
    "cifar100": 32,
    "digits": 8,
}  # px of the images on the disk; others: about as ImageNet's are used
TEST_SHARE = {
    "cifar100": 0.2,
    "imagenet100": 0.04,
    "imagenet1000": 0.04,
    "digits": 0.25,
}  # test images for a training image
ROW_BYTES = {"classes": 90, "confusion": 15, "exemplars": 15, "train": 160, "steps": 120}
RUN_SECONDS = 0.5  # of any run, however few its images: its folder, its rows
CHECKPOINTS = 3  # last, previous and the one being written


@dataclass(frozen=True)
class Sizes:
    """(classes, training images) that each step brings, and its test images."""

    steps: tuple[tuple[int, int], ...]
    tests: tuple[int, ...]


@dataclass(frozen=True)
class Estimate:
    """Seconds and bytes. `training` has an entry for each step; `evaluation` counts one pass after
    each step and the pass for herding; `fixed` is what the run costs whatever the number of images:
    its network, its exemplars and checkpoints, its folder.

    `rates` are training images a second in the first step and in later ones, which have a teacher;
    `memory` is the peak, on a CPU that of the whole process; `checkpoint` is one of `CHECKPOINTS`
    that may stand on the disk at a time.
    """

    images: int
    rates: tuple[float, float]
    eval_rate: float
    training: tuple[float, ...]
    evaluation: float
    fixed: float
    memory: int
    checkpoint: int
    rows: int

    @property
    def seconds(self) -> float:
        return sum(self.training) + self.evaluation + self.fixed

    @property
    def disk(self) -> int:
        return CHECKPOINTS * self.checkpoint + self.rows


@dataclass(frozen=True)
class Measured:
    """What a few batches tell of a method on a device; as in `Estimate`. `building` are the seconds
    that a run takes to build its network, `of_a_step` those that a step takes besides its images,
    as for its exemplars and its checkpoint. `phase_rate` are images a second in the phases that
    tune or compress; None for a method without any.
    """

    rates: tuple[float, float]
    eval_rate: float
    memory: int
    checkpoint: int
    building: float = 0.0
    of_a_step: float = 0.0
    phase_rate: float | None = None


def plan(
    recipe: Recipe,
    *,
    seed: int = 0,
    device: str = "cpu",
    data_root: Root = None,
    synthetic: bool = False,
    batches: int = 3,
) -> Estimate:
    """Time `batches` training batches in a first and in a second step, and an evaluation batch; the
    first batch of each warms up.

    `synthetic`: random images of the right size instead of the data, whose numbers of images
    must then be known. Epochs that tune or compress count as training; those of BiC's correction
    are not counted.
    """
    source, sizes = sized_data(recipe, seed, data_root, synthetic=synthetic)
    return estimate(recipe, sizes, measure(recipe, source, device, batches, seed))


def plan_all(
    recipes: Iterable[Recipe],
    *,
    device: str = "cpu",
    data_root: Root = None,
    synthetic: bool = False,
    batches: int = 3,
) -> Iterator[tuple[Recipe, Estimate]]:
    """The estimates of several recipes, as `plan` gives them for one.

    Batches are timed once for all recipes that differ only in how the classes are divided into
    steps.

    Args:
        recipes: What is to be run.
        device: Where.
        data_root: Where the data is.
        synthetic: Random images in place of the data.
        batches: Training batches to time in each of two steps.

    Yields:
        Each recipe with its estimate, as soon as it is known.
    """
    known: dict[str, Measured] = {}
    for recipe in recipes:
        source, sizes = sized_data(recipe, 0, data_root, synthetic=synthetic)
        trained = repr((recipe.model, recipe.train, recipe.method, recipe.data.image_size))
        key = trained + repr((recipe.data.dataset, recipe.data.transforms))
        if key not in known:
            known[key] = measure(recipe, source, device, batches)
        yield recipe, estimate(recipe, sizes, known[key])


def sized_data(
    recipe: Recipe, seed: int, data_root: Root, *, synthetic: bool
) -> tuple[Source, Sizes]:
    return synthetic_data(recipe) if synthetic else real_data(recipe, seed, data_root)


def measure(recipe: Recipe, source: Source, device: str, batches: int, seed: int = 0) -> Measured:
    """Train and evaluate on a few images."""
    device = check_device(device)
    RNGManager.set_random_seeds(seed)
    trial = shortened_recipe(without_weights(recipe))
    benchmark = trial_benchmark(trial, source, batches)
    watch, start = Stopwatch(), time.perf_counter()
    strategy = runnable(build_strategy(trial, build_model(trial), device=device, plugins=(watch,)))
    built = time.perf_counter()
    train_trial(strategy, benchmark)
    trained = time.perf_counter()
    checkpoint = checkpoint_bytes(strategy)
    saved = time.perf_counter()
    return Measured(
        rates=(watch.rate(0), watch.rate(max(watch.steps))),
        eval_rate=evaluation_rate(strategy, benchmark),
        memory=peak_memory(strategy.device),
        checkpoint=checkpoint,
        building=built - start,
        of_a_step=(trained - built - watch.seconds) / len(benchmark.train_stream) + saved - trained,
        phase_rate=rate_of(watch.phases) if watch.phases else None,
    )


def estimate(recipe: Recipe, sizes: Sizes, measured: Measured) -> Estimate:
    """What a run takes whose steps have these sizes."""
    by_step = phases_by_step(recipe, sizes.steps)
    first, later = measured.rates
    training = [
        main / (later if step else first) + tuned / (measured.phase_rate or later)
        for step, (main, tuned) in enumerate(by_step)
    ]
    seen = np.cumsum(sizes.tests)
    passes = int(seen.sum()) + sum(images for _, images in sizes.steps)
    return Estimate(
        images=sum(map(sum, by_step)),
        rates=measured.rates,
        eval_rate=measured.eval_rate,
        training=tuple(training),
        evaluation=passes / measured.eval_rate,
        fixed=RUN_SECONDS + measured.building + len(sizes.steps) * measured.of_a_step,
        memory=measured.memory,
        checkpoint=measured.checkpoint,
        rows=row_bytes(recipe, sizes),
    )


# The data


def real_data(recipe: Recipe, seed: int, data_root: Root) -> tuple[Source, Sizes]:
    source = read_source(recipe, data_root)
    division = plan_of(recipe, seed).with_ids(source.class_names)
    order, per_step = (
        division.order(len(source.class_names)),
        division.classes_per_step(len(source.class_names)),
    )
    counts = [
        np.bincount(part.targets, minlength=len(order)) for part in (source.train, source.test)
    ]
    groups = np.split(np.array(order), np.cumsum(per_step)[:-1])
    steps = tuple((len(group), int(counts[0][group].sum())) for group in groups)
    return source, Sizes(steps, tuple(int(counts[1][group].sum()) for group in groups))


def synthetic_data(recipe: Recipe) -> tuple[Source, Sizes]:
    """Random images, and the numbers of images that the data set is known to have."""
    data = recipe.data
    known = sizes_of(recipe)
    if known is None:
        raise ValueError(
            f"{recipe.name}: how many images your data has is not known. Name it with --data "
            "instead of --synthetic."
        )
    side = STORED.get(data.dataset, max(256, data.image_size))
    channels = 1 if data.dataset == "digits" else 3
    count = max(recipe.train.batch_size, EVAL_IMAGES)
    pixels = torch.randint(256, (count, channels, side, side), dtype=torch.uint8)
    parts = [TensorImages(pixels, np.arange(count) % CLASSES) for _ in range(2)]
    statistics = DATA_SETS[data.dataset].statistics
    names = tuple(map(str, range(CLASSES)))
    source = Source(
        train=parts[0],
        test=parts[1],
        class_names=names,
        image_size=side,
        num_channels=channels,
        statistics=statistics,
    )
    return source, Sizes(
        tuple(known), tuple(round(images * TEST_SHARE[data.dataset]) for _, images in known)
    )


def trial_benchmark(trial: Recipe, source: Source, batches: int) -> SplitBenchmark:
    """Two steps of `batches` batches each; labels are dealt out anew."""
    train = some(source.train, 2 * batches * trial.train.batch_size)
    test = some(source.test, EVAL_IMAGES)
    small = Source(
        train=train,
        test=test,
        class_names=tuple(map(str, range(CLASSES))),
        image_size=source.image_size,
        num_channels=source.num_channels,
        statistics=source.statistics,
    )
    data = trial.data
    return make_benchmark(
        small, Plan(2, 0, list(range(CLASSES)), data.transforms, data.image_size, 0)
    )


def some(images: TensorImages | FileImages, count: int) -> TensorImages | FileImages:
    """`count` images from all over, again and again where there are fewer, with labels 0, 1, … in
    turn.
    """
    count = max(count, 2 * CLASSES)
    positions = (np.arange(count) * max(len(images) // count, 1)) % len(images)
    targets = np.arange(count) % CLASSES
    if isinstance(images, TensorImages):
        return TensorImages(images.images[torch.from_numpy(positions)], targets)
    return FileImages(
        [images.paths[place] for place in positions],
        targets.tolist(),
        images.sizes,
        upright=images.upright,
    )


# The trial


def shortened_recipe(recipe: Recipe) -> Recipe:
    """One epoch of everything, and memory enough for the classes of the trial."""
    changed = {"train.epochs": "1", "train.first_epochs": "none"}
    if recipe.memory.mem_size is not None:
        changed["memory.mem_size"] = str(max(recipe.memory.mem_size, CLASSES))
    for name in (*LATER_EPOCHS, *CORRECTION_ROUNDS):
        if name in dict(recipe.method.options):
            changed[f"method.{name}"] = "1"
    return override(recipe, changed)


Timed = list[tuple[float, int]]  # seconds and images of batches


class Stopwatch(SupervisedPlugin):
    """Seconds and images of every training batch, loading included: by step, and those of later
    phases.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[int, Timed] = {}
        self.phases: Timed = []
        self._start = 0.0

    def before_training_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        self._start = self._now(strategy)

    def before_phase_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        self._start = self._now(strategy)

    def after_training_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        self._note(
            strategy, self.steps.setdefault(strategy.clock.train_exp_counter, []), strategy.mb_y
        )

    def after_phase_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        self._note(strategy, self.phases, strategy.phase_running.batch[1])

    def _note(self, strategy: Strategy, timed: Timed, targets: Tensor) -> None:
        now = self._now(strategy)
        timed.append((now - self._start, len(targets)))
        self._start = now

    @staticmethod
    def _now(strategy: Strategy) -> float:
        if strategy.device.type == "cuda":
            torch.cuda.synchronize(strategy.device)
        return time.perf_counter()

    @property
    def seconds(self) -> float:
        """Of all batches."""
        return sum(seconds for timed in (*self.steps.values(), self.phases) for seconds, _ in timed)

    def rate(self, step: int) -> float:
        """Images a second of the main epochs of a step."""
        return rate_of(self.steps[step])


def rate_of(timed: Timed) -> float:
    """Images a second, the first batch left out where there are more."""
    timed = timed[1:] or timed
    return sum(images for _, images in timed) / max(sum(seconds for seconds, _ in timed), 1e-9)


def train_trial(strategy: Strategy, benchmark: SplitBenchmark) -> None:
    if strategy.trains_on_stream:
        strategy.train(benchmark.train_stream)
        return
    for experience in benchmark.train_stream:
        strategy.train(experience)


def evaluation_rate(strategy: Strategy, benchmark: SplitBenchmark) -> float:
    """Images a second of one pass, the second where the first took less than a second."""
    steps = torch.tensor([0, 0, 1, 1])
    data: ConcatDataset = ConcatDataset([test.dataset for test in benchmark.test_stream])
    for _ in range(2):
        start = time.perf_counter()
        judge(strategy, data, steps)
        seconds = time.perf_counter() - start
        if seconds > 1:
            break
    return len(data) / max(seconds, 1e-9)


# The disk


class Counted(io.RawIOBase):
    """Counts the bytes written to it, and keeps none."""

    num_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.num_bytes += memoryview(data).nbytes
        return memoryview(data).nbytes


def checkpoint_bytes(strategy: Strategy) -> int:
    """Model, optimizer, teacher, memory as a checkpoint holds them; 0 for a strategy that has
    none.
    """
    if not strategy.resumable:
        return 0
    counted = Counted()
    torch.save(strategy.state_dict(), cast(IO[bytes], counted))
    return counted.num_bytes


def row_bytes(recipe: Recipe, sizes: Sizes) -> int:
    """The CSV files, at most and roughly."""
    classes = np.cumsum([count for count, _ in sizes.steps])
    images, tests = np.cumsum([count for _, count in sizes.steps]), np.cumsum(sizes.tests)
    kept = np.minimum(recipe.memory.mem_size or classes * (recipe.memory.per_class or 0), images)
    rows = {
        "steps": len(classes),
        "classes": int(classes.sum()),
        "confusion": int(np.minimum(classes**2, tests).sum()),
        "exemplars": int(kept.sum()),
        "train": epochs_in_all(recipe, len(classes)),
    }
    return sum(count * ROW_BYTES[name] for name, count in rows.items())


def epochs_in_all(recipe: Recipe, num_steps: int) -> int:
    return num_steps * (recipe.train.epochs + sum(later_epochs(recipe).values()))
