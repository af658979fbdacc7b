"""One process per run folder."""

import ctypes
import errno
import fcntl
import os
import signal
import stat
import sys
import weakref
from pathlib import Path

PR_SET_PDEATHSIG = 1  # of <linux/prctl.h>
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


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
        while True:
            file = self._open()
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                current = self._is_current(file)
            except BlockingIOError:
                owner = os.read(file, 32).decode(errors="replace").strip() or "unknown"
                os.close(file)
                raise FolderInUseError(
                    f"{self.path.parent} is in use by process {owner}. Wait for it to "
                    "finish, or stop it."
                ) from None
            except BaseException:
                os.close(file)
                raise
            if current:
                break
            os.close(file)  # its owner has removed it since it was opened
        self._file = file
        self._owner = os.getpid()
        HELD.add(self)
        os.truncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        return self

    def _open(self) -> int:
        """The file itself, never what a link of this name leads to."""
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR):
                raise ValueError(f"{self.path} must be a file, not a link or a folder.") from None
            raise
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise ValueError(f"{self.path} must be a file.")
        return file

    def _is_current(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def check(self) -> None:
        """A ValueError if the file was removed or replaced: another process may own the folder."""
        if self._file is None or not self._is_current(self._file):
            raise ValueError(
                f"{self.path} was removed or replaced while process {os.getpid()} was running: "
                "another process may use the folder. This one stops without saving."
            )

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            if self._is_current(self._file):
                self.path.unlink(missing_ok=True)
            self.drop()

    def drop(self) -> None:
        """Close the file without removing it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def release_in_child() -> None:
    """In a child made by fork while a folder is owned, which is a loader process: it does not hold
    the folder, leaves Ctrl-C to its parent, and on Linux dies with it, however the parent ends.
    """
    held = [lock for lock in HELD if lock._file is not None]
    if not held:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != held[0]._owner:  # it was gone before the call
            os._exit(1)
    for lock in held:
        lock.drop()


HELD: "weakref.WeakSet[RunLock]" = weakref.WeakSet()
os.register_at_fork(after_in_child=release_in_child)
