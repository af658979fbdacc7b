"""Several ranks of one run: images per second, and what gathering costs.

Ranks wait for each other, so these rows are of wall-clock time, the best of several epochs; beside
it the CPU time of a rank, which other work on the machine does not change.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from avalanche_hfc.ranks import Share
from avalanche_hfc.strategies import HFCStrategy
from experiments.benches.timing import Row
from experiments.benches.training import DuringStep, benchmark, hfc, vit

BATCH, CLASSES = 64, 1000
IMAGES, MEMORY = 256, 64  # of an epoch, and those of them that are exemplars
REPEATS = 5


def rows() -> Iterator[Row]:
    alone, together = measured(1), measured(2)
    for clock, of in (("wall", ""), ("cpu", "CPU time of a rank: ")):
        yield Row(
            f"{of}HFC training on 2 gloo ranks of b = 32, TSAViT",
            "one rank of b = 64, one core each",
            1e3 * together[clock] / IMAGES,
            1e3 * alone[clock] / IMAGES,
            "ms per image",
            "≥ 1.7 faster",
            1.7,
            faster=True,
        )
    yield Row(
        f"gathering on 2 ranks, b = {BATCH}, C = {CLASSES}",
        "3 % of a training step on them",
        1e3 * together["gathering"],
        1e3 * 0.03 * together["wall"] * BATCH / IMAGES,
        "ms",
        "≤ 1",
        1.0,
    )


def measured(ranks: int) -> dict[str, float]:
    """What rank 0 has measured, each rank in a process of one thread."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-m", "experiments.benches.ranks", folder]
        processes = [
            subprocess.Popen(
                [*command, str(rank), str(ranks)],
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(ranks)
        ]
        said = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError(f"A rank of {ranks} has failed.")
    return json.loads(said[0].splitlines()[-1])


def best(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Least wall-clock and CPU seconds of a work that all ranks begin together."""
    found = []
    for _ in range(repeats):
        if dist.is_initialized():
            dist.barrier()
        start = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    wall, cpu = zip(*found, strict=True)
    return min(wall), min(cpu)


def measure(rank: int, ranks: int) -> dict[str, float]:
    """Seconds of an epoch of the second step, and of the gathering of a training step."""
    found: dict[str, float] = {}

    def epochs(strategy: HFCStrategy) -> None:
        assert len(strategy.adapted_dataset) == IMAGES
        strategy.training_epoch()
        found["wall"], found["cpu"] = best(strategy.training_epoch, REPEATS)

    strategy = hfc(vit(), plugins=[DuringStep(epochs)], mem_size=MEMORY)
    for experience in benchmark(2, IMAGES - MEMORY, 8).train_stream:
        strategy.train(experience)
    if ranks > 1:
        share = Share(rank, ranks, BATCH)
        logits = torch.randn(share.own, CLASSES, requires_grad=True)
        labels = torch.zeros(share.own, dtype=torch.int64)
        # logits of model and teacher, class ids and task labels
        gathered = (logits, logits.detach(), labels, labels)
        found["gathering"], _ = best(lambda: [share.gather(rows) for rows in gathered], 50)
    return found


def main(folder: str, rank: int, ranks: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if ranks > 1:
        store = f"file://{Path(folder) / 'store'}"
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    print(json.dumps(measure(rank, ranks)))
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
