"""A finished run learns the classes of a folder, as one more step, in a run folder of its own."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from avalanche_hfc.benchmarks import SplitBenchmark
from avalanche_hfc.benchmarks.files import Records, class_names
from avalanche_hfc.lab import Recipe, override
from avalanche_hfc.lab.checkpoint import BLOCK, DurableFile, sync_folder
from avalanche_hfc.lab.data import (
    DATA_FILE,
    Root,
    build_benchmark,
    data_note,
    data_root_of,
    learned_folders,
    read_records,
    refuse_known_classes,
    refuse_other_data,
    write_records,
)
from avalanche_hfc.lab.options import LATER_EPOCHS
from avalanche_hfc.lab.progress import Progress
from avalanche_hfc.lab.ranks import check_device, machine
from avalanche_hfc.lab.run import run
from avalanche_hfc.lab.run_folder import COLUMNS, RunFolder, versions
from avalanche_hfc.lab.trained_run import FinishedRun, read_run


def resume(
    path: Path | str,
    *,
    device: str = "cpu",
    data_root: Path | str | None = None,
    num_workers: int | None = None,
    progress: Progress | None = None,
    verify_data: bool = False,
    allow_code: bool = False,
) -> None:
    """Train the rest of a run, with the recipe, the seed and the data that its folder names. A
    finished run is left as it is.

    Args:
        path: The run folder, or the folder of a recipe that holds one run.
        device: Where to train.
        data_root: Where the data is, if it has moved.
        num_workers: Loader processes; by default none on the CPU, several beside a GPU.
        progress: Is told of epochs and steps.
        verify_data: Read all images again to compare them with those of the run.
        allow_code: As in `FinishedRun`.
    """
    folder, metadata, recipe = read_run(path, allow_code=allow_code)
    if data_root is not None and "data" in recipe.paths:
        recipe = replace(recipe, paths={**recipe.paths, "data": str(Path(data_root).resolve())})
    run(
        recipe,
        metadata["seed"],
        folder.path,
        device=device,
        data_root=data_root or metadata.get("data_root"),
        num_workers=num_workers,
        progress=progress,
        verify_data=verify_data,
    )


ROWS = tuple(f"{name}.csv" for name in (*COLUMNS, "train"))


class Accuracy(NamedTuple):
    accuracy: float
    classes: int
    images: int


def learn(
    path: Path | str,
    new: Path | str,
    *,
    epochs: int | None = None,
    out: Path | str | None = None,
    data_root: Root = None,
    device: str = "cpu",
    progress: Progress | None = None,
    verify_data: bool = False,
    skip_bad: bool = False,
    allow_code: bool = False,
) -> Path:
    """Train a finished run on the classes of the folder `new`, then evaluate all classes. Gives the
    longer run's folder.

    The run itself is only read. `out` is the folder of the longer one, by default beside it and
    named after both. It also contains the rows of the earlier steps, and the same call resumes it.
    `data_root` is needed for the exemplars, unless the run has recorded it. `epochs` None: as
    before. Your data must be what the run was trained on; `verify_data` as in `run`,
    `allow_code` as in `FinishedRun`. `skip_bad` leaves out files of `new` that are not readable
    images, which is also done if the run itself was trained so.
    """
    device = check_device(device)
    finished = FinishedRun(path, allow_code=allow_code)
    refuse_known_classes(new, class_names(new), list(finished.class_names.values()))
    recipe = longer_recipe(finished, Path(new), epochs)
    if skip_bad:
        recipe = replace(recipe, paths={**recipe.paths, "skip_bad": True})
    if data_root is not None and "data" in recipe.paths:
        recipe = replace(recipe, paths={**recipe.paths, "data": str(Path(data_root).resolve())})
    path = finished.folder.path
    folder = Path(out) if out is not None else default_folder(path, Path(new))
    if folder.resolve() == path.resolve():
        raise ValueError(
            f"{folder} is the run itself, which stays as it is. Choose another folder."
        )
    seed = finished.note["seed"]
    RunFolder(folder).check(recipe.as_dict(), seed)
    root = data_root_of(recipe, data_root or finished.note.get("data_root"))
    if not (folder / "recipe.json").exists():
        known = {} if verify_data else read_records(path)
        data = check_data(finished, seed, root, recipe, known)
        copy_run(finished, folder, recipe, data, device)
    run(
        recipe,
        seed,
        folder,
        device=device,
        data_root=root,
        progress=progress,
        verify_data=verify_data,
    )
    return folder


def default_folder(path: Path, new: Path) -> Path:
    """Beside the run: runs/<recipe>/0 and flowers give runs/<recipe>/0+flowers."""
    path = path.resolve()
    return path.with_name(f"{path.name}+{new.resolve().name}")


def longer_recipe(finished: FinishedRun, new: Path, epochs: int | None) -> Recipe:
    """The recipe of the run, which also names the folders learned behind it."""
    recipe = finished.recipe
    if epochs is not None and epochs != recipe.train.epochs:
        changed = {"train.epochs": str(epochs)}
        # what follows the main epochs would follow the new number: another method than trained
        changed |= {
            f"method.{name}": str(recipe.train.epochs)
            for name, count in recipe.method.options
            if name in LATER_EPOCHS and count is None
        }
        recipe = override(recipe, changed)
    folders = (*learned_folders(recipe), str(new.resolve()))
    name = f"{recipe.name}+{new.resolve().name}"
    return replace(recipe, name=name, paths={**recipe.paths, "learn": folders})


def check_data(
    finished: FinishedRun, seed: int, root: Root, recipe: Recipe, known: Records
) -> SplitBenchmark:
    """All data. Raise, before anything is written, where that of the steps before is not the
    same.
    """
    benchmark = build_benchmark(recipe, seed, root, known)
    names = dict(enumerate(benchmark.class_names))
    other = [name for class_id, name in finished.class_names.items() if names.get(class_id) != name]
    if other:
        raise ValueError(
            f"{root} is not the data of {finished.folder.path}: it has no class {other[0]!r} "
            "at the same place."
        )
    arriving = f"learned {len(learned_folders(recipe))}/"
    earlier = {
        name: record for name, record in benchmark.records.items() if not name.startswith(arriving)
    }
    refuse_other_data(finished.folder, earlier)
    return benchmark


def copy_run(
    finished: FinishedRun, folder: Path, recipe: Recipe, data: SplitBenchmark, device: str
) -> None:
    """Rows, last checkpoint and the records of the data, under the longer recipe and the conditions
    of today, at once by a rename when all of it is on the disk.
    """
    aside = RunFolder(folder.with_name(f".{folder.name}.new"))
    with aside.owned():
        remove_copies(aside.path)  # of a process that was killed
        try:
            copy_files(finished.folder.path, aside.path)
            write_records(aside.path, data.records)
            note = {name: value for name, value in finished.note.items() if name != "finished"}
            today = {"versions": versions(), "machine": machine(device)}
            files = {"data": data_note(data.records, data.left_out)}
            aside.write({**note, "recipe": recipe.as_dict(), **today, **files})
            sync_folder(aside.path)
            os.rename(aside.path, folder)
        except BaseException:
            remove_copies(aside.path)
            raise
        (folder / "lock").unlink()
    sync_folder(folder.parent)


def copy_files(source: Path, target: Path) -> None:
    """Rows and last checkpoint, on the disk when it returns."""
    last = Path("checkpoint") / "last"
    (target / last).mkdir(parents=True)
    for name in (*map(Path, ROWS), last / "state.pt", last / "note.json"):
        with (source / name).open("rb") as file, DurableFile(target / name) as copy:
            shutil.copyfileobj(file, copy, BLOCK)
    sync_folder(target / last)
    sync_folder(target / last.parent)


def remove_copies(aside: Path) -> None:
    """Remove what `copy_run` puts there, and nothing else."""
    for name in (*ROWS, "recipe.json", DATA_FILE):
        (aside / name).unlink(missing_ok=True)
    shutil.rmtree(aside / "checkpoint", ignore_errors=True)


def accuracies(folder: Path | str, *, allow_code: bool = False) -> dict[str, Accuracy]:
    """What the last step of a run has changed, by the classifier that the method uses.

    Args:
        folder: The run folder.
        allow_code: As in `FinishedRun`.

    Returns:
        "before": of the old classes before the last step; "old" and "new": of the old and of the
        new classes after it.
    """
    finished = FinishedRun(folder, allow_code=allow_code)
    nme = dict(finished.recipe.method.options).get("inference") == "nme"
    correct = "correct_nme" if nme else "correct"
    rows = pd.DataFrame(finished.folder.read("classes")).drop(columns="name")
    rows = rows.apply(pd.to_numeric)
    last = rows["step"].max()
    now = rows[rows["step"] == last]
    groups = {
        "before": rows[rows["step"] == last - 1],
        "old": now[now["brought_in"] < last],
        "new": now[now["brought_in"] == last],
    }
    return {
        word: Accuracy(
            group[correct].sum() / group["total"].sum(), len(group), group["total"].sum()
        )
        for word, group in groups.items()
    }
