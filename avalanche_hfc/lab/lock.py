"""One process per run folder."""

import fcntl
import os
import signal
import weakref
from pathlib import Path


class FolderInUseError(ValueError):
    """Another owner holds the run folder."""


class RunLock:
    """The file `lock`, locked by the kernel while a process owns the folder; it holds the process's
    id. For a `with` statement.

    The kernel gives it back when the process ends, however it ends: a file left by a dead process
    stops nobody, not even where its id is in use again. A second owner, in this process or another,
    is a FolderInUseError.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file: int | None = None

    def __enter__(self) -> "RunLock":
        self._file = self._locked()
        while not self._is_held():  # its owner has removed it since it was opened
            self.drop()
            self._file = self._locked()
        HELD.add(self)
        os.truncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())
        return self

    def _locked(self) -> int:
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(file, 32).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise FolderInUseError(
                f"{self.path.parent} is in use by process {owner}. Wait for it to finish, or stop "
                "it."
            ) from None
        return file

    def _is_held(self) -> bool:
        """Whether the open file is the one that stands in the folder."""
        try:
            return self._file is not None and os.path.samestat(
                os.fstat(self._file), os.lstat(self.path)
            )
        except FileNotFoundError:
            return False

    def check(self) -> None:
        """A ValueError if the file was removed or replaced: another process may own the folder."""
        if not self._is_held():
            raise ValueError(
                f"{self.path} was removed or replaced while process {os.getpid()} was running: "
                "another process may use the folder. This one stops without saving."
            )

    def __exit__(self, *_: object) -> None:
        if self._is_held():
            self.path.unlink()
        self.drop()

    def drop(self) -> None:
        """Close the file without removing it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def release_in_child() -> None:
    """In a child made by fork while a folder is owned, which is a loader process: it does not hold
    the folder, and leaves Ctrl-C to its parent.
    """
    held = [lock for lock in HELD if lock._file is not None]
    for lock in held:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        lock.drop()


HELD: "weakref.WeakSet[RunLock]" = weakref.WeakSet()
os.register_at_fork(after_in_child=release_in_child)
