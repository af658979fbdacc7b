"""Ctrl-C that is not lost. No torch."""

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """Remembers Ctrl-C for a `with` block, which then ends with a KeyboardInterrupt whatever else
    happens. Python drops one that is raised while an object is destroyed, as an iterator over
    loader processes is after each pass; and code that Python calls may turn it into an error of its
    own, which a table would take for a run that failed.

    Outside the main thread, and where Ctrl-C is not python's default, nothing is changed.
    """

    def __init__(self) -> None:
        self._met = False
        self._before: Any = None

    def __enter__(self) -> "Interrupts":
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        ):
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._met and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt from error

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._met = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """A KeyboardInterrupt if there was one, which has not ended the block."""
        if self._met:
            raise KeyboardInterrupt
