"""A run: one recipe, one seed, one folder. The same call starts it, resumes it, or finds it
finished.
"""

import errno
import hashlib
import inspect
import logging
import resource
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch.nn import Module
from torch.utils.data import ConcatDataset

from avalanche_hfc._types import Experience, Json, Strategy
from avalanche_hfc.lab import Recipe
from avalanche_hfc.lab.build import Built
from avalanche_hfc.lab.build import build as build_recipe
from avalanche_hfc.lab.checkpoint import Checkpoint, load_checkpoint
from avalanche_hfc.lab.data_files import (
    data_note,
    read_records,
    refuse_other_data,
    write_records,
)
from avalanche_hfc.lab.describe import text_of
from avalanche_hfc.lab.machine import Interrupts, commit, cpu, default_workers, most_workers
from avalanche_hfc.lab.overrides import FROM_FILE
from avalanche_hfc.lab.progress import Progress, work_by_step
from avalanche_hfc.lab.protocol import runnable
from avalanche_hfc.lab.ranks import check_exact, check_same, on_first, together
from avalanche_hfc.lab.record import (
    Recorder,
    Saver,
    class_rows,
    confusion_rows,
    counts_of,
    exemplar_rows,
    judge,
    summary,
)
from avalanche_hfc.lab.run_folder import RunFolder, RunRows
from avalanche_hfc.metrics import StepCounts
from avalanche_hfc.models.weights import loaded_from_file, report_of
from avalanche_hfc.plugins.losses import GRDPlugin
from avalanche_hfc.plugins.official import OfficialLossPlugin
from avalanche_hfc.ranks import world
from avalanche_hfc.strategies._base.method import TeacherPlugin

AT_START: Json = {"step": 0, "inside": False, "done": 0.0}  # of a checkpoint between steps
WITH_TEACHER = (GRDPlugin, OfficialLossPlugin, TeacherPlugin)
log = logging.getLogger(__name__)


@runtime_checkable
class HasSettings(Protocol):
    """What can be run: a `Recipe`, or what a caller's `build` understands."""

    def as_dict(self) -> Json:
        """Every setting, as plain data: what recipe.json holds."""


def run(
    recipe: HasSettings,
    seed: int,
    folder: Path | str,
    *,
    build: Callable[..., Built] = build_recipe,
    device: str = "cpu",
    data_root: Path | str | None = None,
    progress: Progress | None = None,
    num_workers: int | None = None,
    checkpoint_seconds: float | int | None = None,
    verify_data: bool = False,
    set_aside: Callable[[], Mapping[str, str]] | None = None,
) -> None:
    """Train the recipe in this folder. An interrupted run resumes from its last checkpoint: the
    rows written after it are written again.

    The rows are those of an uninterrupted run, apart from time and memory. A strategy without
    `state_dict`, such as Avalanche's own, has no checkpoints: after an interruption it starts again
    from the beginning. A finished run is left as it is. On several ranks of torch.distributed each
    calls this, with the same arguments; rank 0 alone reads and writes the folder, and reports
    progress. The rows are those of one rank up to rounding.

    Args:
        recipe: What to train; it has `as_dict()`.
        seed: Of weights, batches and transforms.
        folder: Of the run.
        build: `build(recipe, seed, device=…, data_root=…, plugins=…)` gives benchmark and strategy,
            and seeds before.
        device: Where to train.
        data_root: Where the data is. Your data must be what the run began with.
        progress: Called for every batch, epoch and step.
        num_workers: Loader processes, by default as many as `default_workers` has for the device.
        checkpoint_seconds: As `interval` of `Saver`.
        verify_data: Read all files of the data again; by default those whose size or time changed.
        set_aside: Starts over: it moves away what is in the folder, and returns what recipe.json is
            to hold of it. It is called, on rank 0, when everything else has been checked.
    """
    device = check_device(device)
    loading = loader_options(device, num_workers)
    run_folder, values, fresh = RunFolder(folder), recipe.as_dict(), set_aside is not None
    check_same(values, seed, fresh=fresh)
    with ExitStack() as stack:
        if not fresh:
            claim(stack, run_folder, values, seed)
        interrupts = stack.enter_context(Interrupts())
        if not fresh and on_first(lambda: run_folder.finished):
            return

        recorder = Recorder(progress or Progress(), seed, interrupts)
        places: dict[str, Any] = {"device": device, "data_root": data_root}
        if not fresh and not verify_data and (known := on_first(lambda: read_records(folder))):
            places["known"] = known
        built = together(lambda: build(recipe, seed, **places, plugins=(recorder,)))
        strategy, benchmark = runnable(built.strategy), built.benchmark
        check_exact(built.strategy, benchmark)
        notes = {"weights": loaded_from_file(strategy.model), **commit()}
        if set_aside is not None:
            notes |= on_first(partial(make_way, set_aside, run_folder, strategy))
            claim(stack, run_folder, values, seed)
        if data_root is not None:
            notes["data_root"] = str(Path(data_root).resolve())
        changed = on_first(lambda: begin(run_folder, values, seed, built, device, notes))

        rows = saver = None
        if world().first:
            stack.enter_context(logged(run_folder.log))
            tell(recorder.progress, recipe, built, notes["weights"])
            if changed:
                warn(
                    f"{run_folder.path} resumes under other conditions ({'; '.join(changed)}): its "
                    "rows may differ from an unbroken run's."
                )
            rows = RunRows(run_folder)
            saver = Saver(run_folder.checkpoints, rows, checkpoint_seconds, run_folder.check_owned)
        recorder.begin(strategy, rows, saver)
        note = restore(run_folder, strategy, recorder)

        steps = Steps(recipe, built, recorder, note)
        for step, experience in steps.left():
            trained_on = benchmark.train_stream if strategy.trains_on_stream else experience
            strategy.train(trained_on, **loading)
            counts = steps.judge(step)
            if world().first:
                steps.save(step, counts)
        if world().first:
            run_folder.finish()


def claim(stack: ExitStack, run_folder: RunFolder, values: Json, seed: int) -> None:
    """Own the folder until the stack ends, on rank 0. A ValueError on all ranks if it is another
    process's, or has another run.
    """
    on_first(lambda: run_folder.check(values, seed))
    on_first(lambda: stack.enter_context(run_folder.owned()))
    on_first(lambda: run_folder.check(values, seed))  # nobody writes it any more


def begin(
    run_folder: RunFolder,
    values: Json,
    seed: int,
    built: Built,
    device: str,
    notes: dict[str, str],
) -> list[str]:
    """Write recipe.json, or compare it with the code and the data of a run that resumes; the
    versions and the machine that are others than before, in words.
    """
    check_room(run_folder, runnable(built.strategy))
    records = built.benchmark.records
    notes |= keep_code(run_folder, built.strategy)
    refuse_other_data(run_folder, records)
    if records:
        write_records(run_folder.path, records)
    data = data_note(records, built.benchmark.left_out)
    if data:  # yours, which is named in the recipe
        notes.pop("data_root", None)
    return run_folder.begin(values, seed, machine(device), data, **notes)


def tell(progress: Progress, recipe: HasSettings, built: Built, weights: str) -> None:
    """Log, and report, what there is to know of weights and data before the training."""
    log.info("weights: %s", weights)
    for remark in (*remarks_of(recipe, built.strategy.model), *built.benchmark.remarks):
        log.info(remark)
        progress.remark(remark)


def restore(run_folder: RunFolder, strategy: Strategy, recorder: Recorder) -> Json:
    """Load the last checkpoint and drop the rows behind it. Its note, or that of the beginning."""
    checkpoint = on_first(lambda: find_checkpoint(run_folder, strategy, recorder))
    note = AT_START
    if checkpoint is not None:
        load_state(strategy, checkpoint, run_folder)
        note = checkpoint.note
        where = "in step {step}, after epoch {epoch} of phase {phase}"
        where = where if note["inside"] else "at the start of step {step}"
        log.info("resumes %s", where.format(**note))
    if recorder.rows is not None:
        recorder.rows.keep(note.get("rows", {}))
    return note


def find_checkpoint(
    run_folder: RunFolder, strategy: Strategy, recorder: Recorder
) -> Checkpoint | None:
    """The last checkpoint that can be used; None: from the beginning, which is said before any row
    is dropped.
    """
    rows = recorder.rows
    assert rows is not None
    if strategy.resumable:
        checkpoint = load_checkpoint(run_folder.checkpoints, rows.check)
        if checkpoint is not None:
            return checkpoint
    if any(rows.counts.values()):
        if (run_folder.metadata() or {})["recipe"].get("own", {}).get("learn"):
            raise ValueError(
                f"{run_folder.path} has no checkpoint that can be used, and its first steps were "
                "trained in another run. Give the same `hfc learn` command again."
            )
        line = (
            f"{run_folder.path} has rows but no checkpoint to resume from: it starts again from "
            "the beginning."
        )
        log.warning(line)
        recorder.progress.remark(line)
    return None


class Steps:
    """The steps of a run from where it stands: those that are left, and the rows of each.

    Args:
        recipe: What is trained.
        built: Benchmark and strategy.
        recorder: The plugin that writes the rows of an epoch.
        note: Where the training stands.
    """

    def __init__(self, recipe: HasSettings, built: Built, recorder: Recorder, note: Json):
        self.benchmark, self.recorder, self.note = built.benchmark, recorder, note
        self.strategy = runnable(built.strategy)
        self.steps = torch.full((len(self.benchmark.class_names),), -1)
        self.work = work_by_step(
            recipe,
            [
                (len(experience.classes_in_this_experience), len(experience.dataset))
                for experience in self.benchmark.train_stream
            ],
            [len(experience.dataset) for experience in self.benchmark.test_stream],
            teacher=any(isinstance(plugin, WITH_TEACHER) for plugin in built.strategy.plugins),
        )
        rows = recorder.rows
        self.counts = [] if rows is None else counts_of(rows, len(self.steps))

    def left(self) -> Iterator[tuple[int, Experience]]:
        """Number and experience of each step that is left; of a strategy that trains on the whole
        stream, the last.
        """
        last = len(self.benchmark.train_stream) - 1
        first = last if self.strategy.trains_on_stream else self.note["step"]
        self.recorder.progress.begin([work.total for work in self.work], first + self.note["done"])
        for step, experience in enumerate(self.benchmark.train_stream):
            self.steps[list(experience.classes_in_this_experience)] = step
            if step < max(first, self.note["step"]):
                continue
            inside = self.note["inside"] and step == self.note["step"]
            kept = ("seconds", "images", "done") if inside else ()
            kept_of_step = {name: self.note[name] for name in kept}
            self.recorder.begin_step(step, self.work[step], **kept_of_step)
            yield step, experience

    def judge(self, step: int) -> StepCounts:
        """One evaluation pass over the test images of all classes seen."""
        self.seconds = self.recorder.seconds
        seen: ConcatDataset = ConcatDataset(
            [test.dataset for test in self.benchmark.test_stream[: step + 1]]
        )
        try:
            return judge(self.strategy, seen, self.steps)
        except FloatingPointError as error:
            raise FloatingPointError(
                f"{error} It was trained up to step {step}, epoch {self.recorder.epoch} (counted "
                "from 0): training has diverged. Try a lower learning rate."
            ) from None

    def save(self, step: int, counts: StepCounts) -> None:
        """The rows of a step, then a checkpoint."""
        rows, saver = self.recorder.rows, self.recorder.saver
        assert rows is not None and saver is not None
        self.counts.append(counts)
        row = {
            "step": step,
            **summary(self.strategy, self.counts, self.steps),
            "seconds": round(self.seconds, 2),
            "images_per_second": round(self.recorder.images / self.seconds, 1),
            "peak_memory": peak_memory(self.strategy.device),
        }
        rows.add("classes", class_rows(step, counts, self.steps, self.benchmark.class_names))
        rows.add("confusion", confusion_rows(step, counts))
        rows.add("exemplars", exemplar_rows(step, self.strategy))
        rows.add("steps", [row])
        saver.save(self.strategy, {**AT_START, "step": step + 1})
        words = "step %d: accuracy %.4f on %d classes, %.1f s"
        log.info(words, step, row["accuracy"], row["classes"], self.seconds)
        self.recorder.progress.step(row)


def remarks_of(recipe: HasSettings, model: Module) -> Iterator[str]:
    """What the weights file has changed in the recipe, and what was changed in the file's tensors,
    a line each.
    """
    if isinstance(recipe, Recipe):
        leaves = recipe.leaves()
        changed = [leaf for leaf, source in recipe.sources.items() if source == FROM_FILE]
        # one at None is that of the backbone, which is named
        values = [f"{leaf} {text_of(leaves[leaf])}" for leaf in changed if leaves[leaf] is not None]
        if values:
            yield f"By the weights file, in place of the recipe's: {', '.join(values)}."
    report = report_of(model)
    if report is not None and report.resampled:
        yield (
            "The weights file was made for images of another number of patches: its position "
            "embeddings are resampled."
        )


def keep_code(run_folder: RunFolder, strategy: object) -> dict[str, str]:
    """Refuse another source file of a method of the user's than the run began with. What
    recipe.json is to hold of it.
    """
    kind = type(strategy)
    if kind.__module__.split(".")[0] in ("avalanche", "avalanche_hfc"):
        return {}
    try:
        path = Path(inspect.getsourcefile(kind) or "")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except (TypeError, OSError):  # typed into a notebook: there is no file
        return {}
    held = (run_folder.metadata() or {}).get("method_sha256", digest)
    if held != digest:
        raise ValueError(
            f"{path}, the source of {kind.__name__}, is not what {run_folder.path} was trained "
            "with. "
            "Restore it, or start another run with --out."
        )
    return {"method_sha256": digest}


def load_state(training: Any, checkpoint: Checkpoint, run_folder: RunFolder) -> None:
    """Let a training take over a checkpoint; a ValueError that names the run where it does not
    fit.
    """
    try:
        training.load_state_dict(checkpoint.state)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(
            f"The checkpoint in {run_folder.checkpoints} does not fit this run: {kind}"
            f"{str(error).partition(chr(10))[0]}"
        ) from error


def loader_options(device: str, num_workers: int | None) -> dict[str, int]:
    """What the loaders are given; a ValueError for more processes than can be of use here."""
    if num_workers is None:
        num_workers = default_workers(device)
    elif not 0 <= num_workers <= most_workers():
        raise ValueError(
            f"num_workers must be 0 to {most_workers()}, 4 for each processor of this machine; "
            f"got {num_workers}."
        )
    return {"num_workers": num_workers} if num_workers else {}


def check_device(device: str) -> str:
    """The device as torch calls it: "auto" is the GPU if there is one.

    Args:
        device: "auto", or a device of torch.

    Returns:
        The device.

    Raises:
        ValueError: torch does not know or does not find the device.

    Example:
        >>> check_device("cpu")
        'cpu'
    """
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"No device {device!r} here: {why}. Use auto or cpu; cuda, cuda:1, … on a machine with "
            "GPUs."
        ) from None
    return device


def make_way(
    set_aside: Callable[[], Mapping[str, str]], run_folder: RunFolder, training: Any
) -> Mapping[str, str]:
    """Let what is in the folder be moved aside; before, check that there is room beside it."""
    check_room(run_folder, training, stays=True)
    return set_aside()


def check_room(run_folder: RunFolder, training: Any, *, stays: bool = False) -> None:
    """An OSError where the disk has no room for three checkpoints of model, teacher and the
    optimizer's moments, in place of those that are there, or beside them if they stay.
    """
    if not training.resumable:
        return
    moments = (
        2
        if "betas" in training.optimizer.defaults
        else int(bool(training.optimizer.defaults.get("momentum", 0)))
    )
    needed = checkpoints_size(training.model, moments)
    files = () if stays else run_folder.checkpoints.rglob("*")
    there = sum(path.stat().st_size for path in files if path.is_file())
    places = (run_folder.path, *run_folder.path.absolute().parents)
    free = shutil.disk_usage(next(place for place in places if place.exists())).free
    if needed > free + there:
        words = (
            f"No space left: checkpoints of this run need about {needed / 1e9:.1f} GB, "
            f"{(free + there) / 1e9:.1f} GB are free"
        )
        raise OSError(errno.ENOSPC, words, str(run_folder.path))


def checkpoints_size(model: torch.nn.Module, moments: int) -> int:
    """Bytes of three checkpoints: model, teacher and the optimizer's moments; the head as it is."""
    weights = sum(
        value.numel() * value.element_size()
        for value in model.state_dict().values()
        if isinstance(value, torch.Tensor)
    )
    return 3 * weights * (2 + moments)


def peak_memory(device: torch.device) -> int:
    """Bytes: allocated on a GPU at most, or by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def machine(device: str) -> str:
    gpu = f", {torch.cuda.get_device_name(device)}" if torch.device(device).type == "cuda" else ""
    ranks = f", ranks: {world().size}" if world().several else ""
    return f"{cpu()}{gpu}, threads: {torch.get_num_threads()}{ranks}"


def warn(message: str) -> None:
    log.warning(message)
    warnings.warn(message, stacklevel=3)


class LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk is reported by the rows that cannot be written, not by a traceback for each
        line of the log.
        """


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Inside, what the package logs goes to this file as well."""
    logger, handler = logging.getLogger("avalanche_hfc"), LogFile(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()
