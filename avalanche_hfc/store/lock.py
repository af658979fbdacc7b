"""One process per run folder."""

import fcntl
import os
import weakref
from pathlib import Path


class RunLock:
    """The file `lock`, locked by the kernel while a process owns the folder; it holds the process's
    id. For a `with` statement.

    The kernel gives it back when the process ends, however it ends: a file left by a dead process
    stops nobody, not even where its id is in use again. A second owner, in this process or another,
    is a ValueError.
    """

    def __init__(self, path: Path):
        self.path = path
        self._file: int | None = None

    def __enter__(self) -> "RunLock":
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                current = self._is_current(file)
            except BlockingIOError:
                owner = os.read(file, 32).decode(errors="replace").strip() or "unknown"
                os.close(file)
                raise ValueError(
                    f"{self.path.parent} is in use: process {owner} is running it. Wait for "
                    "its end, or end it."
                ) from None
            except BaseException:
                os.close(file)
                raise
            if current:
                break
            os.close(file)  # its owner has removed it since it was opened
        self._file = file
        HELD.add(self)
        os.truncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        return self

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self.path))
        except FileNotFoundError:
            return False

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self.path.unlink(missing_ok=True)
            self.drop()

    def drop(self) -> None:
        """Close the file without removing it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def drop_all() -> None:
    """In a child made by fork: a loader process that outlives its killed parent must not hold the
    parent's folder.
    """
    for lock in list(HELD):
        lock.drop()


HELD: "weakref.WeakSet[RunLock]" = weakref.WeakSet()
os.register_at_fork(after_in_child=drop_all)
