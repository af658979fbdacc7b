"""Trainings on several ranks, in processes of their own that have one process group: every job runs
in them, and in this process on one rank.
"""

import datetime
import multiprocessing
import os
import traceback
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
import tiny_runs
import torch
import torch.distributed as dist
from avalanche.training import Naive
from contract_entries import CASES, small_cnn
from contract_runs import LR, benchmark_of, build, seed
from tiny_runs import tiny_run
from torch import nn
from torch.optim import SGD
from torch.utils.data import ConcatDataset
from torchvision.ops import StochasticDepth
from waiting import PATIENCE

from avalanche_hfc.benchmarks import SplitBenchmark
from avalanche_hfc.benchmarks.sources import FileImages, Source
from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab.build import Built, runnable
from avalanche_hfc.lab.overrides import with_data
from avalanche_hfc.lab.progress import Progress
from avalanche_hfc.lab.ranks import on_first
from avalanche_hfc.lab.record import judge
from avalanche_hfc.lab.run import run
from avalanche_hfc.models import TSAViT
from avalanche_hfc.plugins import GFCPlugin, GRDPlugin, HerdingReplayPlugin
from avalanche_hfc.plugins.ranked import PhasePlugin
from avalanche_hfc.ranks import Share, agree, arrange_layers, with_batches, world
from avalanche_hfc.strategies._base.shares import SharedBatches

HERE = Path(__file__).parent
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(HERE), str(HERE.parent / "support"), os.environ.get("PYTHONPATH", "")]
)  # for the server that processes are forked from
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["contract_ranks"])
BY_NAME = {str(case): case for case in CASES if case.ours}
BATCH = 9  # of 10 images, then of 20: last batches of 1 and 2, fewer than 2 and 3 ranks


@contextmanager
def no_gathering():
    """Each rank computes its loss from its own rows, as plain DistributedDataParallel would."""
    gather, backpropagate = Share.gather, SharedBatches.backpropagate
    Share.gather = lambda share, rows: rows[: share.own]
    SharedBatches.backpropagate = lambda strategy, loss, module: strategy.gradient_mean.backward(
        loss, module
    )
    try:
        yield
    finally:
        Share.gather, SharedBatches.backpropagate = gather, backpropagate


class Turned:
    """The batches of a sampler, the rows of each in another order."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        return (positions[1:] + positions[:1] for positions in self.batches)


@contextmanager
def turned_rows():
    """One rank sums up the same rows in another order: all that differs is rounding."""
    shared = SharedBatches.shared
    SharedBatches.shared = lambda strategy, loader: with_batches(
        loader, Turned(loader.batch_sampler)
    )
    try:
        yield
    finally:
        SharedBatches.shared = shared


CHANGES = {"": nullcontext, "no gathering": no_gathering, "turned rows": turned_rows}


def trained(name, *, model="vit", dtype="float32", batch=BATCH, lr=LR, change="", **options):
    """Two steps of a strategy: weights, exemplars, and what it predicts."""
    torch.set_default_dtype(torch.float32)
    case, kind = BY_NAME[name], getattr(torch, dtype)
    seed()
    network = (small_cnn() if model == "resnet" else case.entry.model()).to(kind)
    optimizer = SGD(network.parameters(), lr=lr, momentum=0.9)
    strategy = build(case, model=network, optimizer=optimizer, train_mb_size=batch, **options)
    strategy.draw_seed = 3
    benchmark = benchmark_of(per_class=5, dtype=kind)
    with CHANGES[change]():
        for experience in benchmark.train_stream[:2]:
            strategy.train(experience)
    seen = torch.full((10,), -1)
    for step, experience in enumerate(benchmark.train_stream[:2]):
        seen[list(experience.classes_in_this_experience)] = step
    tests = ConcatDataset([each.dataset for each in benchmark.test_stream[:2]])
    counts = judge(runnable(strategy), tests, seen)
    weights = {k: v.clone() for k, v in strategy.model.state_dict().items() if hasattr(v, "shape")}
    return {
        "weights": weights,
        "exemplars": {k: v.tolist() for k, v in strategy.exemplars().items()},
        "confusion": counts.confusion,
        "loss": strategy.losses.means["total"],
    }


def distance(one, other):
    """The largest difference of two sets of weights, relative to weights above 1."""
    assert one.keys() == other.keys()
    return max(
        float(((a.double() - b.double()).abs() / a.double().abs().clamp(min=1)).max())
        for a, b in ((one[name], other[name]) for name in one)
        if a.numel()
    )


def refusal(action):
    """The message of the ValueError that an action ends with."""
    try:
        action()
    except ValueError as error:
        return str(error)
    return "not refused"


def disagreeing():
    """What each rank is told when rank 1 has another value, seed or memory."""
    rank = world().rank

    def another_seed():
        seed()
        strategy = build(BY_NAME["finetune host"])
        seed(3 + rank)
        strategy.train(benchmark_of().train_stream[0])

    def another_memory():
        seed()
        strategy = build(BY_NAME["herding-replay host"])
        kept = strategy.exemplars
        strategy.exemplars = lambda: {k: v[: 4 - rank] for k, v in kept().items()}
        strategy.train(benchmark_of().train_stream[0])

    def drawing(name, event):
        """A plugin draws on rank 1 alone, before the second epoch."""

        def draw(plugin, strategy, **options):
            phase = strategy.phase_running
            epoch = strategy.clock.train_exp_epochs if phase is None else phase.epoch
            if rank == 1 and epoch == 1:
                torch.rand(1)

        seed()
        plugin = type("Drawing", (PhasePlugin,), {event: draw})()
        strategy = build(BY_NAME[name], plugins=[plugin], train_epochs=2)
        for experience in benchmark_of().train_stream[:2]:
            strategy.train(experience)

    def failing_first():
        on_first(lambda: (_ for _ in ()).throw(ValueError("no such folder")))

    return {
        "value": refusal(lambda: agree("the recipe", f"lr {rank}")),
        "seed": refusal(another_seed),
        "memory": refusal(another_memory),
        "drawn": refusal(lambda: drawing("hfc", "before_training_epoch")),
        "drawn in phase": refusal(lambda: drawing("foster hfc", "before_phase_epoch")),
        "first": refusal(failing_first),
    }


def refused():
    """What is said before the first batch where a training could not be exact."""
    experience = benchmark_of().train_stream[0]

    def hosted(plugin):
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        Naive(model=model, optimizer=SGD(model.parameters(), lr=0.1), plugins=[plugin]).train(
            experience
        )

    def small_batch():
        build(BY_NAME["hfc"], train_mb_size=1).train(experience)

    def attention_dropout():
        seed()
        model = TSAViT(
            "vit_tiny_patch16_224", image_size=8, patch_size=4, msa_blocks=1,
            backbone_options=dict(embed_dim=32, num_heads=2, in_chans=1, attn_drop_rate=0.1),
        )  # fmt: skip
        build(BY_NAME["hfc"], model=model).train(experience)

    def random_layer():
        seed()
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), StochasticDepth(0.2, "row"))
        arrange_layers("Mine", model, torch.device("cpu"))

    def batch_norm():
        seed()
        build(BY_NAME["hfc"], model=small_cnn()).train(experience)

    return {
        "batch": refusal(small_batch),
        "batch norm": refusal(batch_norm),
        "attention": refusal(attention_dropout),
        "random layer": refusal(random_layer),
        "GFCPlugin": refusal(lambda: hosted(GFCPlugin())),
        "GRDPlugin": refusal(lambda: hosted(GRDPlugin())),
        "HerdingReplayPlugin": refusal(lambda: hosted(HerdingReplayPlugin(mem_size=20))),
    }


class Stop(Progress):
    """Stops a run on every rank, after the second epoch of a step and before its checkpoint."""

    def __init__(self, step):
        self.place = (step, 1)

    def epoch(self, row):
        if (row["step"], row["epoch"]) == self.place:
            raise KeyboardInterrupt


def folder_run(folder, method="hfc", *, stopped_in=None):
    """A whole run in a folder, by `engine.run`, or up to a moment in one of its steps."""
    with suppress(KeyboardInterrupt):
        tiny_run(folder, method, progress=None if stopped_in is None else Stop(stopped_in))


def copied_data(folder):
    """What each rank is told of a run whose data is at another place on each rank: of equal copies,
    then of images of which one value differs on rank 1. And of weights that differ there.
    """
    rank = world().rank
    images = np.random.default_rng(3).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    classes = np.arange(12) % 4

    def refused_with(name, pixels):
        path = Path(folder, f"{name}-{rank}.npz")
        parts = {"x_train": pixels, "y_train": classes, "x_test": images, "y_test": classes}
        np.savez(path, **parts)
        values = {"epochs": "1", "image-size": "8", "patch-size": "4"}
        chosen = with_data(override(recipe("npz-t2-finetune@demo"), values), path)
        return refusal(lambda: run(chosen, 0, Path(folder, name), data_root=path))

    def with_other_weights(*arguments, **options):
        built = tiny_runs.build(*arguments, **options)
        with torch.no_grad():
            next(built.strategy.model.parameters()).add_(rank)
        return built

    other = images.copy()
    other[5, 2, 2, 0] ^= rank
    return {
        "copies": refused_with("copies", images),
        "others": refused_with("others", other),
        "weights": refusal(lambda: tiny_run(Path(folder, "weights"), build=with_other_weights)),
    }


def listed_files(folder):
    """What each rank is told of images in files, of which one is larger on rank 1: nobody has read
    them.
    """
    root = Path(folder, "files", str(world().rank))
    for place in range(4):
        path = root / f"{place % 2}" / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"no image" + b"x" * (place == 3 and world().rank))
    files = [str(path) for path in sorted(root.rglob("*.png"))]
    parts = [FileImages(files, [0, 0, 1, 1], {(8, 8)}, upright=False) for _ in range(2)]
    source = Source(train=parts[0], test=parts[1], class_names=("a", "b"), image_size=8)
    options = dict(image_shape=(3, 8, 8), train_transform=None, eval_transform=None, remarks=())

    def with_files(*arguments, **others):
        built = tiny_runs.build(*arguments, **others)
        return Built(SplitBenchmark(source, [0, 1], [1, 1], **options), built.strategy)

    return refusal(lambda: tiny_run(Path(folder, "of files"), build=with_files))


def fresh_run(folder):
    """What each rank is told of a run that starts over: by rank 1 alone, then on weights that
    differ, then by all. And how often rank 0 has moved the run that was there.
    """
    rank, moves = world().rank, []
    path = Path(folder, "fresh")

    def move():
        moves.append(rank)
        path.rename(Path(folder, "fresh before"))
        return {"launch": "this one"}

    def with_other_weights(*arguments, **options):
        built = tiny_runs.build(*arguments, **options)
        with torch.no_grad():
            next(built.strategy.model.parameters()).add_(rank)
        return built

    tiny_run(path)
    found = {
        "alone": refusal(lambda: tiny_run(path, set_aside=move if rank else None)),
        "weights": refusal(lambda: tiny_run(path, set_aside=move, build=with_other_weights)),
        "before": len(moves),
        "all": refusal(lambda: tiny_run(path, "icarl", set_aside=move)),
    }
    return found | {"moves": len(moves)}


JOBS = {
    "trained": trained,
    "disagreeing": disagreeing,
    "refused": refused,
    "folder_run": folder_run,
    "copied_data": copied_data,
    "listed_files": listed_files,
    "fresh_run": fresh_run,
}


def do(job):
    name, arguments, options = job
    return JOBS[name](*arguments, **options)


def work(rank, ranks, folder, jobs):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=ranks,
        timeout=datetime.timedelta(minutes=10),
    )
    try:
        results = [do(job) for job in jobs]
    except BaseException:
        Path(f"{folder}/{rank}.txt").write_text(traceback.format_exc())
        raise
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def on_ranks(ranks, folder, jobs):
    """The results of the jobs on each rank: `[rank][job]`."""
    processes = [
        CONTEXT.Process(target=work, args=(rank, ranks, str(folder), jobs)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
        process.kill()
    errors = "".join(path.read_text() for path in sorted(Path(folder).glob("*.txt")))
    assert [process.exitcode for process in processes] == [0] * ranks, errors
    return [torch.load(f"{folder}/{rank}.pt", weights_only=False) for rank in range(ranks)]
