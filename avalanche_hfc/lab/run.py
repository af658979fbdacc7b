"""A run: one recipe, one seed, one folder. The same call starts it, resumes it, or finds it
finished.
"""

import hashlib
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch.nn import Module

from avalanche_hfc._types import Json, Strategy
from avalanche_hfc.lab import Recipe
from avalanche_hfc.lab.build import Built, runnable
from avalanche_hfc.lab.build import build as build_recipe
from avalanche_hfc.lab.checkpoint import (
    Checkpoint,
    check_room,
    load_checkpoint,
    load_state,
    room_of,
    warn,
)
from avalanche_hfc.lab.data import data_note, read_records, refuse_other_data, write_records
from avalanche_hfc.lab.describe import text_of
from avalanche_hfc.lab.machine import Interrupts, commit, default_workers, most_workers
from avalanche_hfc.lab.overrides import FROM_FILE
from avalanche_hfc.lab.progress import Progress, StepWork, work_by_step
from avalanche_hfc.lab.ranks import (
    check_device,
    check_exact,
    check_same,
    machine,
    on_first,
    together,
)
from avalanche_hfc.lab.record import AT_START, Recorder
from avalanche_hfc.lab.run_folder import RunFolder, RunRows
from avalanche_hfc.models.weights import loaded_from_file, report_of
from avalanche_hfc.plugins.losses import GRDPlugin
from avalanche_hfc.plugins.official import OfficialLossPlugin
from avalanche_hfc.strategies._base.method import TeacherPlugin

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
    calls this, with the same arguments; rank 0 alone reads and writes the folder. The rows are
    those of one rank up to rounding.

    Args:
        recipe: What to train; it has `as_dict()`.
        seed: Of weights, batches and transforms.
        folder: Of the run.
        build: `build(recipe, seed, device=…, data_root=…, known=…, plugins=…)` gives benchmark and
            strategy, and seeds before.
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
            on_first(lambda: claim(stack, run_folder, values, seed))
        interrupts = stack.enter_context(Interrupts())
        if not fresh and on_first(lambda: run_folder.finished):
            return

        recorder = Recorder(progress or Progress(), seed, interrupts)
        known = {} if fresh or verify_data else on_first(lambda: read_records(folder))
        places = {"device": device, "data_root": data_root, "known": known}
        built = together(lambda: build(recipe, seed, **places, plugins=(recorder,)))
        strategy, benchmark = runnable(built.strategy), built.benchmark
        check_exact(built.strategy, benchmark)
        on_first(lambda: check_disk(run_folder, strategy, fresh=fresh))
        notes = {"weights": loaded_from_file(strategy.model), **commit()}
        if set_aside is not None:
            notes |= on_first(set_aside)
            on_first(lambda: claim(stack, run_folder, values, seed))
        if data_root is not None and not benchmark.records:  # yours is named in the recipe
            notes["data_root"] = str(Path(data_root).resolve())
        on_first(lambda: begin(run_folder, values, seed, built, device, notes))
        on_first(lambda: recorder.open(RunRows(run_folder), checkpoint_seconds))
        tell(recorder.progress, recipe, built, notes["weights"])
        note = restore(run_folder, strategy, recorder)

        recorder.begin(strategy, benchmark, work_of(recipe, built), note)
        for step, experience in recorder.steps_left():
            strategy.train(experience, **loading)
            counts = recorder.judge_step(step)
            recorder.progress.step(on_first(partial(recorder.save_step, counts)))
        on_first(run_folder.finish)


def claim(stack: ExitStack, run_folder: RunFolder, values: Json, seed: int) -> None:
    """Own the folder and log into it until the stack ends. A ValueError if it is another process's,
    or has another run.
    """
    run_folder.check(values, seed)
    stack.enter_context(run_folder.owned())
    run_folder.check(values, seed)  # nobody writes it any more
    stack.enter_context(logged(run_folder.log))


def check_disk(run_folder: RunFolder, training: Any, *, fresh: bool = False) -> None:
    """An OSError where the disk has no room for the checkpoints, in place of those that are there,
    or beside them where the run starts over.
    """
    if training.resumable:
        files = () if fresh else run_folder.checkpoints.rglob("*")
        there = sum(path.stat().st_size for path in files if path.is_file())
        needed = room_of(training.model, training.optimizer) - there
        check_room(run_folder.path, needed, "this run")


def begin(
    run_folder: RunFolder, values: Json, seed: int, built: Built, device: str, notes: dict[str, str]
) -> None:
    """Write recipe.json, or compare it with the code and the data of a run that resumes, and warn
    of versions and a machine that are others than before.
    """
    records = built.benchmark.records
    notes |= keep_code(run_folder, built.strategy)
    refuse_other_data(run_folder, records)
    if records:
        write_records(run_folder.path, records)
    data = data_note(records, built.benchmark.left_out)
    changed = run_folder.begin(values, seed, machine(device), data, **notes)
    if changed:
        warn(
            f"{run_folder.path} resumes under other conditions ({'; '.join(changed)}): its rows "
            "may differ from an unbroken run's."
        )


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
        load_state(strategy, checkpoint, run_folder.checkpoints)
        note = checkpoint.note
        where = "in step {step}, after epoch {epoch} of phase {phase}"
        where = where if note["inside"] else "at the start of step {step}"
        log.info("resumes %s", where.format(**note))
    on_first(lambda: recorder.rows.keep(note.get("rows", {})))
    return note


def find_checkpoint(
    run_folder: RunFolder, strategy: Strategy, recorder: Recorder
) -> Checkpoint | None:
    """The last checkpoint that can be used; None: from the beginning, which is said before any row
    is dropped.
    """
    rows = recorder.rows
    if strategy.resumable:
        checkpoint = load_checkpoint(run_folder.checkpoints, rows.check)
        if checkpoint is not None:
            return checkpoint
    if any(rows.counts.values()):
        if (run_folder.metadata() or {})["recipe"].get("own", {}).get("learn"):
            raise ValueError(
                f"{run_folder.path} has no checkpoint that can be used, and its first steps were "
                "trained in another run. Move it away and give the same `hfc learn` command again."
            )
        line = (
            f"{run_folder.path} has rows but no checkpoint to resume from: it starts again from "
            "the beginning."
        )
        log.warning(line)
        recorder.progress.remark(line)
    return None


def work_of(recipe: HasSettings, built: Built) -> list[StepWork]:
    """What each step will take."""
    train, test = built.benchmark.train_stream, built.benchmark.test_stream
    return work_by_step(
        recipe,
        [(len(each.classes_in_this_experience), len(each.dataset)) for each in train],
        [len(each.dataset) for each in test],
        teacher=has_teacher(built.strategy),
    )


def has_teacher(strategy: Strategy) -> bool:
    """Whether the model of the step before is asked about each image."""
    return any(isinstance(plugin, WITH_TEACHER) for plugin in strategy.plugins)


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
    if (run_folder.metadata() or {}).get("method_sha256", digest) != digest:
        raise ValueError(
            f"{path}, the source of {kind.__name__}, is not what {run_folder.path} was trained "
            "with. Restore it, or start another run with --out."
        )
    return {"method_sha256": digest}


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


@contextmanager
def logged(path: Path) -> Iterator[None]:
    """Inside, what the package logs goes to this file as well. A full disk is reported by the rows
    that cannot be written, not by a traceback for each line of the log.
    """
    logger, handler = logging.getLogger("avalanche_hfc"), logging.FileHandler(path, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.handleError = lambda record: None  # type: ignore[method-assign]
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
        handler.close()
