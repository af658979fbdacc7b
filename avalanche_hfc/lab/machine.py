"""What a number was measured on. No torch."""

import io
import os
import platform
import signal
import subprocess
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

CPUINFO = Path("/proc/cpuinfo")
VECTORS = {
    "avx512f": "AVX-512",
    "avx2": "AVX2",
    "asimd": "NEON",
}  # the widest first: it decides which kernels torch takes

MOST_BY_DEFAULT = 8  # loader processes
RANKS_HERE = "LOCAL_WORLD_SIZE"  # torchrun's variable
WORKERS_HELP = (
    "Loader processes  [default: none on a CPU; beside a GPU one for each core, at most "
    f"{MOST_BY_DEFAULT}]. They start once for each step; data in memory is read without them."
)
# variables by which torch and its libraries use the instructions of an older processor
LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")


def most_workers() -> int:
    """The largest number of loader processes that a run may have: 4 for each processor."""
    return 4 * (os.cpu_count() or 1)


def default_workers(device: str) -> int:
    """Loader processes of a run that names no number: none on the CPU, which they would compete
    for; beside a GPU the cores of this process, divided among the ranks of this machine, at most
    `MOST_BY_DEFAULT`.
    """
    if device == "cpu":
        return 0
    everywhere = os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else everywhere
    return min(MOST_BY_DEFAULT, cores // int(os.environ.get(RANKS_HERE, "1")))


def cpu() -> str:
    """Name, generation and vector instructions of the processor, and whether torch is told to use
    older ones.

    Two processors of one name may be of different generations, and the generation decides how sums
    are rounded.
    """
    facts: dict[str, str] = {}
    if CPUINFO.is_file():
        for line in CPUINFO.read_text().splitlines():
            key, _, value = line.partition(":")
            facts.setdefault(key.strip(), value.strip())
    flags = (facts.get("flags") or facts.get("Features") or "").split()
    parts = [facts.get("model name") or platform.processor() or platform.machine()]
    parts += [
        f"{word} {facts[key]}"
        for key, word in (("cpu family", "family"), ("model", "model"))
        if key in facts
    ]
    parts += [name for flag, name in VECTORS.items() if flag in flags][:1]
    parts += [f"{name}={os.environ[name]}" for name in LIMITS if os.environ.get(name)]
    return ", ".join(parts)


CHECKOUT = Path(__file__).parents[2]


def commit() -> dict[str, str]:
    """The commit of this package where it runs from a git checkout, with "-dirty" if files were
    changed; an empty dict elsewhere.
    """
    if not (CHECKOUT / ".git").exists():
        return {}
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        said = subprocess.run([*command, "--exclude=*"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or not the user's folder
        return {}
    return {"commit": said.stdout.strip()}


HOST_PACKAGES = {"avalanche", "qpsolvers"}


def silence_host() -> None:
    """Not by a filter: Avalanche's deprecation helper puts filters of its own in front of all
    others at every call.
    """
    show = warnings.showwarning

    def show_ours(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if HOST_PACKAGES.isdisjoint(Path(filename).parts):
            show(message, category, filename, lineno, file, line)

    warnings.showwarning = show_ours


class LastingStream:
    """A text stream that is written to as long as that works: a terminal that was closed, or a full
    disk behind it, is no reason to stop.
    """

    def __init__(self, stream: Any):
        self._stream = stream or io.StringIO()

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


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
