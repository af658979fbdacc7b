"""`hfc learn`."""

from pathlib import Path

import click

from avalanche_hfc.cli.allow_code import allow_code
from avalanche_hfc.cli.device import device_option
from avalanche_hfc.cli.loading import announce_loading


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("new_folder", type=click.Path(path_type=Path))
@click.option(
    "--epochs", type=click.IntRange(min=1), help="Of the new step; as in the run if not given."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Run folder of the longer run  [default: beside RUN]",
)
@click.option(
    "--data",
    "data_root",
    type=click.Path(path_type=Path),
    help="Where the data of RUN is, if it is no longer where it was.",
)
@click.option("--verify-data", is_flag=True, help="Read all images of RUN again to compare them.")
@click.option(
    "--skip-bad",
    is_flag=True,
    help="Leave out files of NEW_FOLDER that are not readable images, as for a RUN trained so.",
)
@device_option
@allow_code
def learn(
    run: Path,
    new_folder: Path,
    epochs: int | None,
    out: Path | None,
    data_root: Path | None,
    verify_data: bool,
    skip_bad: bool,
    device: str,
    allow_code: bool,
) -> None:
    """Teach the finished RUN the classes of NEW_FOLDER, as one more step, then evaluate old and new
    classes.

    NEW_FOLDER holds a folder of images for each class, or train/ and test/ with such folders. RUN
    is only read: the longer run has a folder of its own, with all rows, and can be used as RUN
    again. RUN may also be the folder of a recipe that holds one run.
    """
    announce_loading()
    from avalanche_hfc.cli.run_progress import RunBar
    from avalanche_hfc.tasks.learn import accuracies
    from avalanche_hfc.tasks.learn import learn as teach

    bar = RunBar(f"{run} + {new_folder.name}")
    try:
        folder = teach(
            run,
            new_folder,
            epochs=epochs,
            out=out,
            data_root=data_root,
            device=device,
            progress=bar,
            verify_data=verify_data,
            skip_bad=skip_bad,
            allow_code=allow_code,
        )
    finally:
        bar.close()
    judged = accuracies(folder, allow_code=allow_code)
    for word, before in (("old", f"; {judged['before'].accuracy:.4f} before"), ("new", "")):
        found = judged[word]
        click.echo(
            f"{word} classes: accuracy {found.accuracy:.4f} on {found.classes} classes, "
            f"{found.images} test images{before}"
        )
    click.echo(f"Rows: {folder}")
