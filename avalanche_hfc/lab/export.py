"""The model of a finished run as a file that needs no part of this package."""

import json
import logging
import os
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_model

from avalanche_hfc._names import lookup
from avalanche_hfc.lab.trained_run import TrainedRun, load_run

INPUT, OUTPUT = "images", "logits"


def export(
    run: Path | str, to: str, out: Path | str | None = None, *, allow_code: bool = False
) -> Path:
    """Write the model of a finished run to a file, images to logits, with its class names.

    Args:
        run: The run folder, or the folder of a recipe that holds one run.
        to: "onnx", "torchscript", or "safetensors" for the weights alone.
        out: The file. None: model.onnx, model.pt or model.safetensors in the run folder.
        allow_code: As in `load_run`.

    Returns:
        The file.

    Raises:
        FileExistsError: The file is there already.
        ValueError: The format is unknown, what it needs is not installed, or the run cannot be
            used.
    """
    suffix, write = lookup(FORMATS, to, "format")
    if to == "onnx" and not all(map(find_spec, ("onnx", "onnxscript"))):
        raise ValueError(
            "Export to onnx needs onnx and onnxscript: pip install avalanche_hfc[onnx]."
        )
    trained = load_run(run, allow_code=allow_code)
    file = trained.folder / f"model{suffix}" if out is None else Path(out)
    if file.exists():
        raise FileExistsError(f"{file} exists already. Move it, or choose another file.")
    with TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as aside:
        made = Path(aside) / file.name
        with torch.no_grad():
            write(trained, made)
        os.rename(made, file)
    return file


def example(trained: TrainedRun) -> torch.Tensor:
    """Two images: of a single one, exporters take the batch for a constant."""
    return torch.zeros(2, *trained.input_shape)


def about(trained: TrainedRun) -> dict[str, str]:
    """What a file says of its model, as texts."""
    return {
        "class_names": json.dumps(trained.class_names, ensure_ascii=False),
        "input_shape": json.dumps(trained.input_shape),
    }


def write_onnx(trained: TrainedRun, file: Path) -> None:
    logging.getLogger("onnxscript.optimizer").setLevel(logging.ERROR)  # what it leaves as it is
    program = torch.onnx.export(
        trained.model,
        (example(trained),),
        dynamo=True,
        input_names=[INPUT],
        output_names=[OUTPUT],
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        verbose=False,
    )
    assert program is not None
    program.model.metadata_props.update(about(trained))
    program.save(file, external_data=False)


def write_torchscript(trained: TrainedRun, file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # checks of shapes
        warnings.simplefilter("ignore", FutureWarning)  # torch.export is recommended in its place
        script = torch.jit.trace(trained.model, example(trained))
        torch.jit.save(script, file, _extra_files=about(trained))


def write_safetensors(trained: TrainedRun, file: Path) -> None:
    save_model(trained.model, str(file), metadata=about(trained))


FORMATS: dict[str, tuple[str, Callable[[TrainedRun, Path], None]]] = {
    "onnx": (".onnx", write_onnx),
    "torchscript": (".pt", write_torchscript),
    "safetensors": (".safetensors", write_safetensors),
}
