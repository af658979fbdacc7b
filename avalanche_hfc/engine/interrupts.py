"""Ctrl-C that is not lost. No torch."""

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """Remembers Ctrl-C for a `with` block. Python drops a KeyboardInterrupt that is raised while an
    object is destroyed, as an iterator over loader processes is after each pass.

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

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._met = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """A KeyboardInterrupt if there was one, which has not ended the block."""
        if self._met:
            raise KeyboardInterrupt
