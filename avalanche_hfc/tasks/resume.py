"""Resume a run by its folder alone."""

from dataclasses import replace
from pathlib import Path

from avalanche_hfc.engine.progress import Progress
from avalanche_hfc.engine.run import run
from avalanche_hfc.tasks.finished_run import read_run


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
        data_root: Where the data is, if it is no longer where it was.
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
