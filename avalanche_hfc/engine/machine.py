"""What a number was measured on. No torch."""

import os
import platform
from pathlib import Path

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
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not every system has it
        cores = os.cpu_count() or 1
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
