"""One pass over a test set: all that the tables, curves and reports need."""

from collections.abc import Mapping, Sized
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from avalanche_hfc.metrics.counts import SeenColumns, StepCounts, count
from avalanche_hfc.models.modes import evaluation_mode


@torch.no_grad()
def evaluate(
    model: nn.Module,
    dataset: Dataset,
    steps: Int[Tensor, "C"],
    *,
    class_means: Mapping[int, Float[Tensor, "D"]] | None = None,
    batch_size: int = 128,
    device: torch.device | str | None = None,
    num_workers: int = 0,
) -> StepCounts:
    """Counts of one pass over `dataset`, which yields (image, class id, …) with classes seen so
    far; `steps (C,)`, -1 for a class not seen.

    With `class_means` {class id: mean feature} the model must offer `embed` and `classify`, and the
    nearest mean is found from the same
    embedding: argmax of <embedding, unit mean> over the classes given. `device=None` is the
        device of the model's parameters.

    The model is in eval mode meanwhile; every module's mode and torch's random state are put back,
    after an error too. Results stay on the device, a few numbers per image, until the pass is over.
    """
    device = (
        torch.device(device)
        if device is not None
        else next((p.device for p in model.parameters()), torch.device("cpu"))
    )
    seen = SeenColumns(steps, device)
    nearest_mean = None if class_means is None else _NearestMean(model, class_means, seen, device)
    loader, steps = _loader(dataset, batch_size, num_workers, device), steps.cpu()
    targets, rows = [], []
    with (
        evaluation_mode(model),
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
    ):
        for images, labels, *_ in loader:
            _check_labels(labels, steps)
            images = images.to(device, non_blocking=True)
            logits, *nearest = (
                nearest_mean(images) if nearest_mean is not None else (model(images),)
            )
            targets.append(labels)
            rows.append((*seen.judge(logits, labels.to(device, non_blocking=True)), *nearest))
    predicted, gradient, *nearest = (torch.cat(column).cpu() for column in zip(*rows, strict=True))
    return count(torch.cat(targets), predicted, gradient, len(steps), *nearest)


def _loader(
    dataset: Dataset, batch_size: int, num_workers: int, device: torch.device
) -> DataLoader:
    if len(cast(Sized, dataset)) == 0:
        raise ValueError("evaluate: the data set is empty.")
    own_collate = getattr(dataset, "collate_fn", None)  # Avalanche's data sets bring one
    pin_memory = device.type == "cuda"
    return DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=num_workers,
        collate_fn=own_collate,
        pin_memory=pin_memory,
    )


class _NearestMean:
    """Logits and the class with the nearest mean from one embedding. Its length is the same for all
    classes and is left as it is.
    """

    def __init__(
        self,
        model: nn.Module,
        class_means: Mapping[int, Tensor],
        seen: SeenColumns,
        device: torch.device,
    ):
        lacking = [
            name for name in ("embed", "classify") if not callable(getattr(model, name, None))
        ]
        if lacking:
            name = type(model).__name__
            raise ValueError(
                f"evaluate: class_means need a model with embed and classify; {name} lacks "
                f"{' and '.join(lacking)}."
            )
        unknown = sorted(set(class_means) - set(seen.ids.tolist()))
        if unknown or not class_means:
            raise ValueError(
                "evaluate: class_means must be of seen classes, at least one; given "
                f"{len(class_means)}, not seen {unknown}."
            )
        self.model: Any = model
        self.ids = torch.tensor(list(class_means), device=device)
        self.means = F.normalize(
            torch.stack([mean.to(device, torch.float32) for mean in class_means.values()])
        )

    def __call__(self, images: Tensor) -> tuple[Tensor, Tensor]:
        embedding = self.model.embed(images)
        with torch.autocast(embedding.device.type, enabled=False):
            closeness = embedding.float() @ self.means.T
        return self.model.classify(embedding), self.ids[closeness.argmax(1)]


def _check_labels(labels: Int[Tensor, "b"], steps: Int[Tensor, "C"]) -> None:
    """Labels are checked on the host, where the loader leaves them: no synchronisation."""
    inside = labels.clamp(0, len(steps) - 1)
    unseen = labels[(inside != labels) | (steps[inside] < 0)]
    if len(unseen):
        raise ValueError(
            f"evaluate: the data set holds classes not seen yet: {unseen.unique().tolist()}. "
            "Evaluate seen classes only."
        )
