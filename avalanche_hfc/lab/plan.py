"""What a run will cost: time and disk from a few batches, two steps on a few of its images; and
which precision fits a given memory, from two small forward passes on the CPU. Nothing is written.
"""

import io
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from avalanche.models.utils import avalanche_model_adaptation
from avalanche.training.determinism.rng_manager import RNGManager
from avalanche.training.plugins import SupervisedPlugin
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.data import ConcatDataset

from avalanche_hfc._types import Strategy
from avalanche_hfc.benchmarks.scenario import Plan, SplitBenchmark, make_benchmark
from avalanche_hfc.benchmarks.sources import FileImages, Source, TensorImages
from avalanche_hfc.lab import Recipe, override
from avalanche_hfc.lab.build import (
    build_model,
    build_strategy,
    for_any_device,
    runnable,
    without_weights,
)
from avalanche_hfc.lab.checkpoint import num_moments
from avalanche_hfc.lab.data import DATA_SETS, Root, plan_of, read_source
from avalanche_hfc.lab.describe import later_epochs, phases_by_step, sizes_of
from avalanche_hfc.lab.options import CORRECTION_ROUNDS, LATER_EPOCHS
from avalanche_hfc.lab.ranks import check_device, peak_memory
from avalanche_hfc.lab.record import judge
from avalanche_hfc.lab.run import has_teacher
from avalanche_hfc.models import Features
from avalanche_hfc.models.modes import Recomputed
from avalanche_hfc.strategies import IncrementalTemplate
from avalanche_hfc.strategies._base.precision import PRECISIONS

CLASSES = 4  # of the trial, two a step; they do not matter for the time
EVAL_IMAGES = 128  # a batch of `evaluate`
STORED = {"cifar100": 32, "digits": 8}  # px on the disk; others: about as ImageNet's are used
TEST_SHARE = {  # test images for a training image
    "cifar100": 0.2,
    "imagenet100": 0.04,
    "imagenet1000": 0.04,
    "digits": 0.25,
}
ROW_BYTES = {"classes": 90, "confusion": 15, "exemplars": 15, "train": 160, "steps": 120}
RUN_SECONDS = 0.5  # of any run, however few its images: its folder, its rows
CHECKPOINTS = 3  # last, previous and the one being written


@dataclass(frozen=True)
class Sizes:
    """(classes, training images) that each step brings, and its test images."""

    steps: tuple[tuple[int, int], ...]
    tests: tuple[int, ...]


@dataclass(frozen=True)
class Measured:
    """What a few batches tell of a method on a device.

    `rates` are training images a second in the first step and in later ones, which have a teacher;
    `phase_rate` those of the phases that tune or compress, None for a method without any. `memory`
    is the peak in bytes, on a CPU that of the whole process; `checkpoint` one of `CHECKPOINTS` that
    may stand on the disk at a time. `building` are the seconds that a run takes to build its
    network and to compile it, `of_a_step` those that a step takes besides its images, as for its
    exemplars and its checkpoint.
    """

    rates: tuple[float, float]
    eval_rate: float
    memory: int
    checkpoint: int
    building: float = 0.0
    of_a_step: float = 0.0
    phase_rate: float | None = None


@dataclass(frozen=True)
class Estimate:
    """Seconds and bytes. `training` has an entry for each step; `evaluation` counts one pass after
    each step and the pass for herding; `fixed` is what the run costs whatever the number of images:
    its network, its exemplars and checkpoints, its folder.
    """

    measured: Measured
    images: int
    training: tuple[float, ...]
    evaluation: float
    fixed: float
    rows: int

    @property
    def seconds(self) -> float:
        return sum(self.training) + self.evaluation + self.fixed

    @property
    def disk(self) -> int:
        return CHECKPOINTS * self.measured.checkpoint + self.rows


def plan_all(
    recipes: Iterable[Recipe],
    *,
    seed: int = 0,
    device: str = "cpu",
    data_root: Root = None,
    synthetic: bool = False,
    batches: int = 3,
) -> Iterator[tuple[Recipe, Estimate]]:
    """The estimates of several recipes.

    Batches are timed once for all recipes that differ only in how the classes are divided into
    steps: `batches` in a first and in a second step, of which the first of each warms up, and an
    evaluation batch. Epochs that tune or compress count as training; those of BiC's correction are
    not counted.

    Args:
        recipes: What is to be run.
        seed: Of the class order, where the seed draws it.
        device: Where.
        data_root: Where the data is.
        synthetic: Random images of the right size in place of the data, whose numbers of images
            must then be known.
        batches: Training batches to time in each of two steps.

    Yields:
        Each recipe with its estimate, as soon as it is known.
    """
    known: dict[str, Measured] = {}
    for recipe in recipes:
        source, sizes = synthetic_data(recipe) if synthetic else real_data(recipe, seed, data_root)
        data = (recipe.data.dataset, recipe.data.transforms, recipe.data.image_size)
        key = repr((recipe.model, recipe.train, recipe.method, data))
        if key not in known:
            known[key] = measure(recipe, source, device, batches, seed)
        yield recipe, estimate(recipe, sizes, known[key])


def measure(recipe: Recipe, source: Source, device: str, batches: int, seed: int = 0) -> Measured:
    """Train and evaluate on a few images."""
    device = check_device(device)
    RNGManager.set_random_seeds(seed)
    trial = shortened_recipe(without_weights(recipe))
    benchmark = trial_benchmark(trial, source, batches)
    watch, start = Stopwatch(), time.perf_counter()
    strategy = runnable(build_strategy(trial, build_model(trial), device=device, plugins=(watch,)))
    built = time.perf_counter()
    stream = benchmark.train_stream
    for trained_on in [stream] if strategy.trains_on_stream else stream:
        strategy.train(trained_on)
    trained, memory = time.perf_counter(), peak_memory(strategy.device)
    checkpoint = checkpoint_bytes(strategy)
    besides = trained - built - watch.seconds
    return Measured(
        rates=(watch.rate(0), watch.rate(max(watch.steps))),
        building=built - start + watch.warm_up,
        of_a_step=besides / len(stream) + time.perf_counter() - trained,
        eval_rate=evaluation_rate(strategy, benchmark),
        memory=memory,
        checkpoint=checkpoint,
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
    passes = int(np.cumsum(sizes.tests).sum()) + sum(images for _, images in sizes.steps)
    return Estimate(
        measured=measured,
        images=sum(map(sum, by_step)),
        training=tuple(training),
        evaluation=passes / measured.eval_rate,
        fixed=RUN_SECONDS + measured.building + len(sizes.steps) * measured.of_a_step,
        rows=row_bytes(recipe, sizes),
    )


# The data


def real_data(recipe: Recipe, seed: int, data_root: Root) -> tuple[Source, Sizes]:
    source = read_source(recipe, data_root)
    division, count = plan_of(recipe, seed).with_ids(source.class_names), len(source.class_names)
    ends = np.cumsum(division.classes_per_step(count))[:-1]
    groups = np.split(np.array(division.order(count)), ends)
    train, test = (
        np.bincount(images.targets, minlength=count) for images in (source.train, source.test)
    )
    steps = tuple((len(group), int(train[group].sum())) for group in groups)
    return source, Sizes(steps, tuple(int(test[group].sum()) for group in groups))


def synthetic_data(recipe: Recipe) -> tuple[Source, Sizes]:
    """Random images, and the numbers of images that the data set is known to have."""
    data, known = recipe.data, sizes_of(recipe)
    if known is None:
        raise ValueError(
            f"{recipe.name}: how many images your data has is not known. Name it with --data "
            "instead of --synthetic."
        )
    side = STORED.get(data.dataset, max(256, data.image_size))
    channels = 1 if data.dataset == "digits" else 3
    count = max(recipe.train.batch_size, EVAL_IMAGES)
    pixels = torch.randint(256, (count, channels, side, side), dtype=torch.uint8)
    images = TensorImages(pixels, np.arange(count) % CLASSES)
    names, statistics = tuple(map(str, range(CLASSES))), DATA_SETS[data.dataset].statistics
    tests = tuple(round(images * TEST_SHARE[data.dataset]) for _, images in known)
    source = Source(
        train=images,
        test=images,
        class_names=names,
        image_size=side,
        num_channels=channels,
        statistics=statistics,
    )
    return source, Sizes(tuple(known), tests)


def trial_benchmark(trial: Recipe, source: Source, batches: int) -> SplitBenchmark:
    """Two steps of `batches` batches each; labels are dealt out anew."""
    train = some(source.train, 2 * batches * trial.train.batch_size)
    names = tuple(map(str, range(CLASSES)))
    small = replace(
        source, train=train, test=some(source.test, EVAL_IMAGES), class_names=names, records={}
    )
    data = trial.data
    order = list(range(CLASSES))
    return make_benchmark(small, Plan(2, 0, order, data.transforms, data.image_size, 0))


def some(images: TensorImages | FileImages, count: int) -> TensorImages | FileImages:
    """`count` images from all over, again and again where there are fewer, with labels 0, 1, … in
    turn.
    """
    count = max(count, 2 * CLASSES)
    positions = (np.arange(count) * max(len(images) // count, 1)) % len(images)
    targets = np.arange(count) % CLASSES
    if isinstance(images, TensorImages):
        return TensorImages(images.images[torch.from_numpy(positions)], targets)
    paths = [images.paths[place] for place in positions]
    return FileImages(paths, targets.tolist(), images.sizes, upright=images.upright)


# The trial


def shortened_recipe(recipe: Recipe) -> Recipe:
    """One epoch of everything, and memory enough for the classes of the trial."""
    changed = {"train.epochs": "1", "train.first_epochs": "none"}
    if recipe.memory.mem_size is not None:
        changed["memory.mem_size"] = str(max(recipe.memory.mem_size, CLASSES))
    counted = {*LATER_EPOCHS, *CORRECTION_ROUNDS} & dict(recipe.method.options).keys()
    return override(recipe, changed | {f"method.{name}": "1" for name in counted})


Timed = list[tuple[float, int]]  # seconds and images of batches


class Stopwatch(SupervisedPlugin):
    """Seconds and images of every training batch, loading included: by step, and those of later
    phases.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[int, Timed] = {}
        self.phases: Timed = []

    def before_training_epoch(self, strategy: Strategy, **kwargs: object) -> None:
        self._split(strategy)

    before_phase_epoch = before_training_epoch

    def after_training_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        timed = self.steps.setdefault(strategy.clock.train_exp_counter, [])
        timed.append((self._split(strategy), len(strategy.mb_y)))

    def after_phase_iteration(self, strategy: Strategy, **kwargs: object) -> None:
        self.phases.append((self._split(strategy), len(strategy.phase_running.batch[1])))

    def _split(self, strategy: Strategy) -> float:
        """Seconds since the last call."""
        if strategy.device.type == "cuda":
            torch.cuda.synchronize(strategy.device)
        now = time.perf_counter()
        seconds, self._last = now - getattr(self, "_last", now), now
        return seconds

    @property
    def seconds(self) -> float:
        """Of all batches."""
        return sum(seconds for timed in (*self.steps.values(), self.phases) for seconds, _ in timed)

    @property
    def warm_up(self) -> float:
        """What the first batches of the steps take longer than the others: torch compiles in
        them, once a run.
        """
        firsts = [(timed[0], rate_of(timed)) for timed in self.steps.values() if len(timed) > 1]
        return sum((max(first[0] - first[1] / rate, 0.0) for first, rate in firsts), 0.0)

    def rate(self, step: int) -> float:
        """Images a second of the main epochs of a step."""
        return rate_of(self.steps[step])


def rate_of(timed: Timed) -> float:
    """Images a second, the first batch left out where there are more."""
    timed = timed[1:] or timed
    return sum(images for _, images in timed) / max(sum(seconds for seconds, _ in timed), 1e-9)


def evaluation_rate(strategy: Strategy, benchmark: SplitBenchmark) -> float:
    """Images a second of one pass, the second where the first took less than a second."""
    data: ConcatDataset = ConcatDataset([test.dataset for test in benchmark.test_stream])
    seconds = 0.0
    for _ in range(2):
        if seconds < 1:
            start = time.perf_counter()
            judge(strategy, data, torch.tensor([0, 0, 1, 1]))
            seconds = time.perf_counter() - start
    return len(data) / max(seconds, 1e-9)


# The disk


def checkpoint_bytes(strategy: Strategy) -> int:
    """Model, optimizer, teacher, memory as a checkpoint holds them; 0 for a strategy that has
    none.
    """
    saved = io.BytesIO()
    if strategy.resumable:
        torch.save(strategy.state_dict(), saved)
    return saved.tell()


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
        "train": len(classes) * (recipe.train.epochs + sum(later_epochs(recipe).values())),
    }
    return sum(count * ROW_BYTES[name] for name, count in rows.items())


# The memory of a device

UNITS = {"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
FEW = (2, 4)  # images of the two passes: what does not grow with them is not an activation
HEAD_CLASSES = 100  # of data whose classes have not been counted


class Fit(NamedTuple):
    """What a precision needs: bytes that do not depend on the batch, and bytes of each image.

    Attributes:
        precision: A key of `PRECISIONS`.
        fixed: Weights, gradients and moments, also of a student, teacher, the images of a batch
            and the feature maps that the method keeps of all of them.
        per_image: Activations of one image.
        checkpointed: What is left of `per_image` with ``checkpoint_activations``; the same number
            where this is not possible.
        batch_size: Images of a batch.
    """

    precision: str
    fixed: int
    per_image: int
    checkpointed: int
    batch_size: int

    @property
    def whole(self) -> int:
        """Bytes of a batch."""
        return self.fixed + self.batch_size * self.per_image

    @property
    def least(self) -> int:
        """Bytes of a batch with checkpointed activations."""
        return self.fixed + self.batch_size * self.checkpointed


def num_bytes(text: str) -> int:
    """A size as it is written on a card.

    Args:
        text: A number with kB, MB, GB or TB, each a thousand times the one before.

    Returns:
        The number of bytes.

    Raises:
        ValueError: If it is not a size.

    Example:
        >>> num_bytes("8GB")
        8000000000
    """
    fitting = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kKMGT]B)", text.strip())
    if fitting is None:
        raise ValueError(f"--memory must be a size such as 8GB or 512MB, got {text!r}.")
    return int(float(fitting[1]) * UNITS[fitting[2]])


def fits(recipe: Recipe) -> list[Fit]:
    """What a recipe needs in each precision, roughly.

    Counted are weights, gradients, moments of the optimizer, teacher, student, the images of a
    batch, their feature maps in methods that keep these, and activations; not counted are the
    libraries of the device and the copies that single operations make.

    Args:
        recipe: What is to be trained.

    Returns:
        An entry for each precision that the method has.

    Raises:
        ValueError: If the recipe cannot be built.
    """
    plain = for_any_device(without_weights(recipe))
    model = build_model(plain)
    strategy = build_strategy(plain, model)
    ours = isinstance(strategy, IncrementalTemplate)
    classes = sum(count for count, _ in sizes_of(recipe) or [(HEAD_CLASSES, 0)])
    arriving = SimpleNamespace(classes_in_this_experience=list(range(classes)))
    avalanche_model_adaptation(model, arriving)
    channels: Any = dict(recipe.model.options)["in_channels"]
    images = torch.zeros(max(FEW), channels, recipe.data.image_size, recipe.data.image_size)
    keeps_features = getattr(strategy, "keeps_features", False)
    forward = features_and_logits(model) if keeps_features else model
    batch, fixed = recipe.train.batch_size, fixed_bytes(strategy)
    found = []
    for name, dtype in PRECISIONS.items() if ours else [("float32", None)]:
        per_image, checkpointed = image_bytes(model, images, dtype, forward)
        if ours and not strategy.trains_model:
            per_image = checkpointed = 0
        of_batch = images[0].nbytes + (map_bytes(model, images, dtype) if keeps_features else 0)
        copies = sum(p.nbytes for p in model.parameters()) // 2 if dtype else 0
        whole = fixed + copies + batch * of_batch
        found.append(Fit(name, whole, per_image, checkpointed if ours else per_image, batch))
    return found


def fixed_bytes(strategy: Strategy) -> int:
    """Weights, gradients and moments of the model and of a student beside it, and a teacher."""
    model = strategy.model
    weights = sum(value.nbytes for value in (*model.parameters(), *model.buffers()))
    trained = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    networks = 1 + getattr(strategy, "trains_student", False)
    of_each = trained * (1 + num_moments(strategy.optimizer))
    return weights * (networks + has_teacher(strategy)) + of_each * networks


def features_and_logits(model: Any) -> Callable[[Tensor], tuple[Features, Tensor]]:
    """The forward pass of a method that keeps features of each image of a batch, to compare them
    with those of the teacher.
    """

    def forward(images: Tensor) -> tuple[Features, Tensor]:
        features = model.features(images)
        return features, model.classify(features.embedding)

    return forward


def map_bytes(model: Any, images: Tensor, dtype: torch.dtype | None) -> int:
    """Features of one image that stay until the loss of the whole batch is differentiated: those of
    the model, of the teacher, and the gradients of what is compared.
    """
    with torch.no_grad(), autocast_on_cpu(dtype):
        embedding, stages, tokens = model.train().features(images)
    compared = sum(rows[0].nbytes for rows in (embedding, *stages))
    return 3 * compared + (0 if tokens is None else 2 * tokens[0].nbytes)


def autocast_on_cpu(dtype: torch.dtype | None) -> torch.autocast:
    """float16 as bfloat16, which is as large and known to every CPU."""
    known = torch.bfloat16 if dtype is torch.float16 else dtype
    return torch.autocast("cpu", known, enabled=known is not None)


def image_bytes(
    model: nn.Module,
    images: Tensor,
    dtype: torch.dtype | None,
    forward: Callable[[Tensor], Any] | None = None,
) -> tuple[int, int]:
    """Activations that one image adds to what a backward pass needs, kept and checkpointed. The
    forward pass is by default the call of the model.
    """
    few, more = (kept_bytes(model, images[:count], dtype, forward or model) for count in FEW)
    kept, checkpointed = ((b - a) // (FEW[1] - FEW[0]) for a, b in zip(few, more, strict=True))
    return kept, checkpointed


def kept_bytes(
    model: nn.Module,
    images: Tensor,
    dtype: torch.dtype | None,
    forward: Callable[[Tensor], Any],
) -> tuple[int, int]:
    """Bytes that a forward pass keeps for the backward pass, weights not counted; and what is left
    of them if of each block only its input is kept, and one block is computed again at a time.
    """
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, int] = {}
    of_blocks, inputs = [], []

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    def count(block: nn.Module, *arguments: Tensor) -> Tensor:
        before = sum(kept.values())
        output = block(*arguments)
        of_blocks.append(sum(kept.values()) - before)
        inputs.append(arguments[0].nbytes)
        return output

    networks = [module for module in model.train().modules() if isinstance(module, Recomputed)]
    for network in networks:
        network.__dict__["run_block"] = count
    with saved_tensors_hooks(keep, lambda value: value), autocast_on_cpu(dtype):
        held = forward(images)  # until all is counted: a place in memory is used once
    for network in networks:
        del network.__dict__["run_block"]
    total = sum(kept.values())
    del held
    return total, total - sum(of_blocks) + sum(inputs) + max(of_blocks, default=0)


def advice(found: Sequence[Fit], memory: int) -> str:
    """The options that train in the memory, in the words of `hfc run`; empty if none do."""
    fit = next((fit for fit in found if fit.least <= memory), None)  # the most exact first
    if fit is None:
        return ""
    options = [] if fit.precision == "float32" else [f"--precision {fit.precision}"]
    options += ["--checkpoint-activations true"] if fit.whole > memory else []
    return " ".join(options) or "as it is"
