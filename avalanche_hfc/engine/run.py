"""A run: one recipe, one seed, one folder. Started, gone on with, or found finished by the same
call.
"""

import errno
import logging
import resource
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from avalanche.benchmarks import NCScenario
from torch.utils.data import ConcatDataset

from avalanche_hfc._types import Experience, Json, Record
from avalanche_hfc.engine.build import Built
from avalanche_hfc.engine.build import build as build_recipe
from avalanche_hfc.engine.machine import cpu
from avalanche_hfc.engine.observe import Recorder, Saver
from avalanche_hfc.engine.progress import Progress
from avalanche_hfc.engine.protocol import Resumable, RunnableStrategy, runnable
from avalanche_hfc.engine.step_rows import (
    class_rows,
    confusion_rows,
    counts_of,
    exemplar_rows,
    judge,
    summary,
)
from avalanche_hfc.models.weights import loaded_from_file
from avalanche_hfc.store.checkpoint import Damaged, load_checkpoint
from avalanche_hfc.store.data_files import (
    data_note,
    read_records,
    refuse_other_data,
    write_records,
)
from avalanche_hfc.store.run_folder import RunFolder, RunRows

AT_START: Json = {
    "step": 0,
    "inside": False,
    "done": 0.0,
}  # the note of a checkpoint between steps
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
    num_workers: int = 0,
    checkpoint_seconds: float | int | None = None,
    verify_data: bool = False,
) -> None:
    """Train the recipe in this folder. An interrupted run goes on from its last checkpoint: the
    rows written after it are written again.

    The rows are those of an unbroken run, time and memory apart. A strategy without `state_dict`,
    such as Avalanche's own, has no
    checkpoints: interrupted, it starts again from the beginning. A finished run is left as it is.
    `recipe` has `as_dict()`; `build(recipe, seed, device=…, data_root=…, plugins=…)` gives
    benchmark and strategy, and seeds before. `checkpoint_seconds` as `interval` of `Saver`;
    `num_workers` loader processes. Data of the user's must be what the run began with: files whose
    size or time has changed are read again, with `verify_data` all.
    """
    check_device(device)
    place, values = RunFolder(folder), recipe.as_dict()
    place.check(values, seed)
    with place.owned():
        place.check(values, seed)  # nobody writes it any more
        if place.finished:
            return
        recorder = Recorder(progress or Progress(), seed)
        known = {} if verify_data else read_records(place.path)
        options = {"known": known} if known else {}
        built = build(
            recipe, seed, device=device, data_root=data_root, plugins=(recorder,), **options
        )
        strategy = runnable(built.strategy)
        check_room(place, strategy)
        weights = loaded_from_file(strategy.model)
        note = keep_data(place, built.benchmark)
        notes = {"weights": weights}
        if data_root is not None and not note:  # the user's data is named in the recipe
            notes["data_root"] = str(Path(data_root).resolve())
        changed = place.begin(values, seed, machine(device), note, **notes)
        with logged(place.log):
            log.info("weights: %s", weights)
            for remark in getattr(built.benchmark, "remarks", ()):
                log.info(remark)
                recorder.progress.remark(remark)
            if changed:
                warn(
                    f"{place.path} goes on under other conditions ({'; '.join(changed)}): "
                    "its rows may differ from an unbroken run's."
                )
            rows = RunRows(place)
            recorder.begin(strategy, rows, Saver(place.checkpoints, rows, checkpoint_seconds))
            Run(place, built.benchmark, strategy, recorder, num_workers).go()
            place.finish()


class Run:
    """The steps of a run from where it stands."""

    def __init__(
        self,
        place: RunFolder,
        benchmark: NCScenario,
        strategy: RunnableStrategy,
        recorder: Recorder,
        num_workers: int,
    ):
        self.place, self.benchmark, self.strategy, self.recorder = (
            place,
            benchmark,
            strategy,
            recorder,
        )
        self.rows = recorder.rows
        self.options = {"num_workers": num_workers} if num_workers else {}
        self.steps = torch.full((len(benchmark.class_names),), -1)
        self.num_steps = len(benchmark.train_stream)

    def go(self) -> None:
        note = self.restore() or AT_START
        first, inside = note["step"], note["inside"]
        self.counts = counts_of(self.rows, len(self.steps))
        images = [len(experience.dataset) for experience in self.benchmark.train_stream]
        self.recorder.progress.begin(images, first + note["done"])
        for step, experience in enumerate(self.benchmark.train_stream):
            self.steps[list(experience.classes_in_this_experience)] = step
            if step < first or (self.strategy.trains_on_stream and step < self.num_steps - 1):
                continue
            interrupted = inside and step == first
            self.recorder.begin_step(
                step,
                **({name: note[name] for name in ("seconds", "images")} if interrupted else {}),
            )
            self.train(experience)
            self.write(step)

    def restore(self) -> Json | None:
        """Load the last checkpoint and drop the rows behind it. Its note; None: from the
        beginning.
        """
        checkpoint = (
            load_checkpoint(self.place.checkpoints, self.check_rows)
            if self.strategy.resumable
            else None
        )
        if checkpoint is None:
            if any(self.rows.counts.values()):
                log.info("starts again from the beginning")
            self.rows.keep(dict.fromkeys(self.rows.counts, 0))
            return None
        self.strategy.load_state_dict(checkpoint.state)
        self.rows.keep(checkpoint.note["rows"])
        inside = checkpoint.note["inside"]
        where = (
            "in step {step}, after epoch {epoch} of phase {phase}"
            if inside
            else "at the start of step {step}"
        )
        log.info("goes on %s", where.format(**checkpoint.note))
        return checkpoint.note

    def check_rows(self, note: Record) -> None:
        lacking = self.rows.lacking(note["rows"])
        if lacking:
            raise Damaged(
                "rows that it was saved after are missing from "
                f"{', '.join(f'{name}.csv' for name in lacking)}"
            )

    def train(self, experience: Experience) -> None:
        self.strategy.train(
            self.benchmark.train_stream if self.strategy.trains_on_stream else experience,
            **self.options,
        )
        self.seconds = self.recorder.seconds

    def write(self, step: int) -> None:
        """One evaluation pass, the rows of the step, a checkpoint."""
        seen: ConcatDataset = ConcatDataset(
            [test.dataset for test in self.benchmark.test_stream[: step + 1]]
        )
        counts = judge(self.strategy, seen, self.steps)
        self.counts.append(counts)
        row = {
            "step": step,
            **summary(self.strategy, self.counts, self.steps),
            "seconds": round(self.seconds, 2),
            "images_per_second": round(self.recorder.images / self.seconds, 1),
            "peak_memory": peak_memory(self.strategy.device),
        }
        self.rows.add("classes", class_rows(step, counts, self.steps, self.benchmark.class_names))
        self.rows.add("confusion", confusion_rows(step, counts))
        self.rows.add("exemplars", exemplar_rows(step, self.strategy))
        self.rows.add("steps", [row])
        self.recorder.saver.save(self.strategy, {**AT_START, "step": step + 1})
        log.info(
            "step %d: accuracy %.4f on %d classes, %.1f s",
            step,
            row["accuracy"],
            row["classes"],
            self.seconds,
        )
        self.recorder.progress.step(row)


def keep_data(place: RunFolder, benchmark: NCScenario) -> Json:
    """Refuse other data of the user's than the run began with. What recipe.json is to hold of
    it.
    """
    records = getattr(benchmark, "records", {})
    refuse_other_data(place, records)
    if records:
        write_records(place.path, records)
    return data_note(records, getattr(benchmark, "left_out", ()))


def check_device(device: str) -> None:
    """A ValueError for a device that torch does not know or does not find."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise ValueError(
            f"No device {device!r} here: {why}. Use cpu; cuda, cuda:1, … on a machine with GPUs."
        ) from None


def check_room(place: RunFolder, training: Resumable) -> None:
    """An OSError where the disk has no room for three checkpoints of model, teacher and the
    optimizer's moments.
    """
    if not training.resumable:
        return
    weights = sum(
        value.numel() * value.element_size()
        for value in training.model.state_dict().values()
        if isinstance(value, torch.Tensor)
    )
    moments = (
        2
        if "betas" in training.optimizer.defaults
        else int(bool(training.optimizer.defaults.get("momentum", 0)))
    )
    needed = 3 * weights * (2 + moments)
    there = sum(path.stat().st_size for path in place.checkpoints.rglob("*") if path.is_file())
    free = shutil.disk_usage(place.path).free
    if needed > free + there:
        words = (
            f"No space left: checkpoints of this run need about {needed / 1e9:.1f} GB, "
            f"{(free + there) / 1e9:.1f} GB are free"
        )
        raise OSError(errno.ENOSPC, words, str(place.path))


def peak_memory(device: torch.device) -> int:
    """Bytes: allocated on a GPU at most, or by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def machine(device: str) -> str:
    gpu = f", {torch.cuda.get_device_name(device)}" if torch.device(device).type == "cuda" else ""
    return f"{cpu()}{gpu}, threads: {torch.get_num_threads()}"


def warn(message: str) -> None:
    log.warning(message)
    warnings.warn(message, stacklevel=3)


class LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk is told by the rows that cannot be written, not by a traceback for each line
        of the log.
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
