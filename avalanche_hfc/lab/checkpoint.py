"""A run's checkpoints: `last` and `previous`, a folder each with state.pt (tensors and plain data)
and note.json.

Written aside as `new`, then renamed. At every instant a whole one is there, if there ever was:
`last`, or else `previous`. All three may exist for a moment, so that is what the disk must hold.
"""

import errno
import hashlib
import logging
import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import torch
from torch import nn
from torch.optim import Optimizer

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
            file.save(state)
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
    checkpoint, refused = None, {}
    for path in filter(Path.is_dir, (folder / name for name in NAMES)):
        try:
            checkpoint = read_checkpoint(path, check)
            break
        except Damaged as error:
            refused[path] = error
    for path, why in refused.items():
        if checkpoint is None and isinstance(why, RowsDamaged):
            raise ValueError(
                f"The checkpoint {path} cannot be used: {why}. Restore the file, or start "
                "another run."
            )
    for path, why in refused.items():
        another = checkpoint is not None or path != list(refused)[-1]
        rest = "The one before is used." if another else "The run starts again from the beginning."
        warn(f"The checkpoint {path} cannot be used: {why}. {rest}")
        shutil.rmtree(path)
    return checkpoint


def warn(message: str) -> None:
    """Warn, in the log as well."""
    log.warning(message)
    warnings.warn(message, stacklevel=3)


def read_checkpoint(path: Path, check: Callable[[Record], None] = lambda note: None) -> Checkpoint:
    """State and note of one checkpoint, as data, if both are what was written.

    Args:
        path: `last` or `previous` of a run's checkpoints.
        check: Given the note, may refuse the checkpoint with Damaged. It is asked last: rows are
            only to blame if the checkpoint is whole itself.

    Raises:
        Damaged: Why it cannot be used.
    """
    note = read_note(path)
    try:
        num_bytes = (path / "state.pt").stat().st_size
        if num_bytes != note["bytes"]:
            raise Damaged(f"its state.pt has {num_bytes} bytes, {note['bytes']} were written")
        with (path / "state.pt").open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != note["sha256"]:
                raise Damaged("its state.pt is not what was written, by its checksum")
        state = torch.load(path / "state.pt", map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise Damaged("it has no state.pt") from None
    except pickle.UnpicklingError:
        raise Damaged("its state.pt is more than tensors and plain data") from None
    except (RuntimeError, EOFError, KeyError, TypeError) as error:
        raise Damaged(f"its state.pt cannot be read: {type(error).__name__}") from None
    check(note)
    return Checkpoint(state, note)


def load_state(training: Any, checkpoint: Checkpoint, path: Path) -> None:
    """Let a training take over a checkpoint; a ValueError that names its folder where it does not
    fit.
    """
    try:
        training.load_state_dict(checkpoint.state)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ValueError(
            f"The checkpoint in {path} does not fit this run: {kind}"
            f"{str(error).partition(chr(10))[0]}"
        ) from error


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

    def save(self, state: State) -> None:
        """Write as torch does; it hides why a write failed, this tells."""
        try:
            torch.save(state, cast(IO[bytes], self))
        except RuntimeError as error:
            raise self._error or error from None

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


# The room on the disk


def num_moments(optimizer: Optimizer) -> int:
    """How many numbers of the size of the weights the optimizer keeps."""
    usual = optimizer.defaults
    return 2 if "betas" in usual else int(bool(usual.get("momentum")))


def room_of(model: nn.Module, optimizer: Optimizer) -> int:
    """Bytes of three checkpoints: model, teacher and the optimizer's moments; the head as it is."""
    weights = sum(value.nbytes for value in model.state_dict().values() if torch.is_tensor(value))
    return 3 * weights * (2 + num_moments(optimizer))


def check_room(folder: Path, needed: int, of_what: str) -> None:
    """An OSError where the disk has not so many bytes for checkpoints."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        words = (
            f"No space left: checkpoints of {of_what} need about {needed / 1e9:.1f} GB, "
            f"{free / 1e9:.1f} GB are free"
        )
        raise OSError(errno.ENOSPC, words, str(folder))
