"""A run's checkpoints: `last` and `previous`, a folder each with state.pt (tensors and plain data)
and note.json.

Written aside as `new`, then renamed. At every instant a whole one is there, if there ever was:
`last`, or else `previous`. All three may exist for a moment, so that is what the disk must hold.
"""

import hashlib
import logging
import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple, cast

import torch

from avalanche_hfc._types import Json, Record, State
from avalanche_hfc.lab.rows import Damaged, RowsDamaged, note_text, read_note

NAMES = ("last", "previous")
BLOCK = 1 << 20  # bytes
log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    state: State
    note: Json


def save_checkpoint(folder: Path, state: State, note: Record) -> None:
    """Make this the last checkpoint. An error leaves those that are there."""
    new = folder / "new"
    folder.mkdir(exist_ok=True)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    try:
        with DurableFile(new / "state.pt") as file:
            file.fill(lambda: torch.save(state, cast(IO[bytes], file)))
        content = {**note, "bytes": file.num_bytes, "sha256": file.sha256.hexdigest()}
        with DurableFile(new / "note.json") as text:
            text.write(note_text(content).encode())
        sync_folder(new)
        rotate(folder)
    except Exception:
        shutil.rmtree(new, ignore_errors=True)  # the room is needed
        raise


def rotate(folder: Path) -> None:
    """`last` becomes `previous`, `new` becomes `last`."""
    if (folder / "last").exists():
        shutil.rmtree(folder / "previous", ignore_errors=True)
        os.replace(folder / "last", folder / "previous")
    os.replace(folder / "new", folder / "last")
    sync_folder(folder)


def load_checkpoint(folder: Path, check: Callable[[Record], None]) -> Checkpoint | None:
    """The last checkpoint that is whole; None if there is none.

    One that is damaged is left out with a warning and removed, so that it never takes the place of
    a whole one.

    Args:
        folder: That of the checkpoints.
        check: Given the note, may refuse a checkpoint with Damaged.

    Raises:
        ValueError: There is a whole one, but the rows beside it are damaged. Nothing is removed.
    """
    refused: dict[str, Damaged] = {}
    checkpoint = None
    for name in NAMES:
        if (folder / name).is_dir():
            try:
                checkpoint = read_checkpoint(folder / name, check)
                break
            except Damaged as error:
                refused[name] = error
    reasons = {name: f"{folder / name} cannot be used: {error}" for name, error in refused.items()}
    for name, why in refused.items():
        if checkpoint is None and isinstance(why, RowsDamaged):
            raise ValueError(
                f"The checkpoint {reasons[name]}. Restore the file, or start another run."
            )
    for name, reason in reasons.items():
        another = checkpoint is not None or name != list(reasons)[-1]
        rest = "The one before is used." if another else "The run starts again from the beginning."
        message = f"The checkpoint {reason}. {rest}"
        log.warning(message)
        warnings.warn(message, stacklevel=3)
        shutil.rmtree(folder / name)
    return checkpoint


def read_checkpoint(path: Path, check: Callable[[Record], None] = lambda note: None) -> Checkpoint:
    """State and note of one checkpoint, as data, if both are what was written.

    Args:
        path: `last` or `previous` of a run's checkpoints.
        check: Given the note, may refuse the checkpoint with Damaged.

    Raises:
        Damaged: Why it cannot be used.
    """
    note = read_note(path)
    if not {"bytes", "sha256"} <= note.keys():
        raise Damaged("its note.json does not tell the checksum of state.pt")
    rows_error = None
    try:
        check(note)
    except RowsDamaged as error:
        rows_error = error  # told only of a checkpoint that is whole itself
    state = read_state(path / "state.pt", note)
    if rows_error is not None:
        raise rows_error
    return Checkpoint(state, note)


def read_state(path: Path, note: Record) -> State:
    """Read as data (`weights_only`), and only if it is byte for byte what was written."""
    try:
        num_bytes = path.stat().st_size
        if num_bytes != note["bytes"]:
            raise Damaged(f"its state.pt has {num_bytes} bytes, {note['bytes']} were written")
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != note["sha256"]:
                raise Damaged("its state.pt is not what was written, by its checksum")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise Damaged("it has no state.pt") from None
    except pickle.UnpicklingError:
        raise Damaged("its state.pt is more than tensors and plain data") from None
    except (RuntimeError, EOFError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, Damaged):
            raise
        raise Damaged("its state.pt cannot be read by torch.load") from None
    if not isinstance(state, dict):
        raise Damaged(f"its state.pt holds a {type(state).__name__}, not a dict")
    return state


class DurableFile:
    """A new file that is on the disk when the `with` block is over; `sha256` and `num_bytes` are of
    what was written.
    """

    def __init__(self, path: Path):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        self._error: OSError | None = None
        self._waiting = bytearray()  # torch writes many small pieces
        self.sha256 = hashlib.sha256()
        self.num_bytes = 0

    def write(self, data: bytes | memoryview) -> int:
        self.sha256.update(data)
        self.num_bytes += len(data)
        self._waiting += data
        if len(self._waiting) >= BLOCK:
            self.flush()
        return len(data)

    def flush(self) -> None:
        """Give everything to the system."""
        rest, self._waiting = memoryview(self._waiting), bytearray()
        try:
            while len(rest):
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self._error = error
            raise

    def fill(self, save: Callable[[], None]) -> None:
        """Call `save`, which writes to this file; torch hides why a write failed, this tells."""
        try:
            save()
        except RuntimeError:
            if self._error is None:
                raise
        if self._error is not None:
            raise self._error

    def __enter__(self) -> "DurableFile":
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        try:
            if error_type is None:
                self.flush()
                os.fsync(self._file)
        finally:
            os.close(self._file)


def sync_folder(folder: Path) -> None:
    """The names in a folder reach the disk, too."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
