"""Herding, loading and evaluation."""

from collections.abc import Iterator

import numpy as np
import torch
from avalanche.benchmarks.scenarios.deprecated.generators import nc_benchmark
from avalanche.evaluation.metrics import accuracy_metrics, class_accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.storage_policy import HerdingSelectionStrategy
from avalanche.training.supervised import Naive
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from avalanche_hfc.benchmarks.positions import collate, flatten
from avalanche_hfc.memory import herding_order
from avalanche_hfc.metrics import evaluate
from avalanche_hfc.models import TSAViT
from experiments.benches.timing import Row, side_by_side


def rows() -> Iterator[Row]:
    yield from herding_rows()
    yield from evaluation_rows()
    yield loading_row()


def numpy_herding(features: np.ndarray, count: int) -> list[int]:
    """The definition: the image whose entry brings the mean of the chosen closest to the mean of
    all.
    """
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    mean, chosen, total = unit.mean(0), [], np.zeros(unit.shape[1])
    for k in range(1, count + 1):
        distance = np.linalg.norm(mean - (unit + total) / k, axis=1)
        distance[chosen] = np.inf
        chosen.append(int(distance.argmin()))
        total += unit[chosen[-1]]
    return chosen


def herding_rows() -> Iterator[Row]:
    features = torch.randn(500, 768, dtype=torch.float64) + 1
    shipped = HerdingSelectionStrategy.make_sorted_indices_from_features
    for count in (20, 500):
        assert herding_order(features, count).tolist() == numpy_herding(features.numpy(), count), (
            "the orders differ"
        )
        works = {
            "ours": lambda n=count: herding_order(features, n),
            "numpy": lambda n=count: numpy_herding(features.numpy(), n),
            "avalanche": lambda: shipped(None, features),
        }
        times = side_by_side(works, repeats=5)
        name = f"herding 500 × 768 → {count}"
        yield Row(
            name,
            "Avalanche's herding (ranks all)",
            1e3 * times["ours"],
            1e3 * times["avalanche"],
            "ms",
            "≥ 20 faster",
            20.0,
            True,
        )
        yield Row(
            name,
            "a greedy loop in numpy, same order",
            1e3 * times["ours"],
            1e3 * times["numpy"],
            "ms",
            "≥ 3 faster",
            3.0,
            True,
        )


def small_vit() -> TSAViT:
    model = TSAViT(
        "vit_tiny_patch16_224",
        image_size=32,
        patch_size=4,
        msa_blocks=4,
        backbone_options=dict(embed_dim=128, num_heads=4),
    )
    model.head.grow(range(10))
    return model


def random_benchmark(num_images: int = 960):
    x, y = torch.randn(num_images, 3, 32, 32), torch.arange(num_images) % 10
    data = TensorDataset(x, y)
    data.targets = y.tolist()
    return nc_benchmark(
        data,
        data,
        n_experiences=2,
        task_labels=False,
        shuffle=False,
        fixed_class_order=list(range(10)),
    ), x


def evaluation_rows() -> Iterator[Row]:
    benchmark, x = random_benchmark()
    model, steps = small_vit(), torch.arange(10) // 5
    data = ConcatDataset([experience.dataset for experience in benchmark.test_stream])
    means = {c: torch.randn(model.embed_dim) for c in range(10)}
    metrics = EvaluationPlugin(
        accuracy_metrics(experience=True, stream=True),
        class_accuracy_metrics(stream=True),
        loggers=[],
    )
    host = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.1),
        criterion=torch.nn.CrossEntropyLoss(),
        eval_mb_size=128,
        evaluator=metrics,
    )

    @torch.no_grad()
    def bare() -> None:
        model.eval()
        for part in x.split(128):
            model(part)

    works = {
        "ours": lambda: evaluate(model, data, steps, class_means=means),
        "bare": bare,
        "avalanche": lambda: host.eval(benchmark.test_stream),
    }
    times = side_by_side(works, repeats=5)
    name = "evaluation after a step (both heads, confusion, FH)"
    yield Row(
        name,
        "a bare forward pass over the same images",
        1e3 * times["ours"],
        1e3 * times["bare"],
        "ms",
        "≤ 1.05",
        1.05,
    )
    yield Row(
        name,
        "Avalanche's eval with accuracy and class accuracy",
        1e3 * times["ours"],
        1e3 * times["avalanche"],
        "ms",
        "≤ 1",
        1.0,
    )


def loading_row() -> Row:
    benchmark, _ = random_benchmark(1920)
    data = benchmark.train_stream[0].dataset.train()
    flat = flatten(data)
    assert flat is not None
    ours, theirs = (
        DataLoader(flat, 64, shuffle=True, collate_fn=collate),
        DataLoader(data, 64, shuffle=True),
    )
    times = side_by_side({"ours": lambda: list(ours), "theirs": lambda: list(theirs)}, repeats=9)
    micro = 1e6 / len(data)
    return Row(
        "loading a batch of positions, per image",
        "DataLoader(exp.dataset)",
        micro * times["ours"],
        micro * times["theirs"],
        "µs",
        "≤ 0.6",
        0.6,
    )
