"""One pass over a test set that counts everything tables, curves and reports need.

`b` images, `N` images of the whole evaluation, `C` columns; a column is a class id. `steps (C,)`
holds the step that introduced each class, -1 for classes not seen yet. Only seen columns compete.
"""

from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from avalanche_hfc.losses import target_gradient
from avalanche_hfc.models.modes import evaluation_mode


@dataclass(frozen=True, init=False)
class StepCounts:
    """What one evaluation counted for each class, as tensors on the CPU.

    A class without images, or not seen yet, has a total of 0. Of the confusion matrix only the
    cells that are not 0 are kept, at most one for each image: `cells` is a coalesced sparse COO
    tensor of shape ``(C, C)``, ordered by class, then by predicted class. `confusion` may be given
    dense or as such a tensor, whose repeated cells are added up; it is dense when it is read.

    Attributes:
        confusion: Number of images of each class (row) predicted as each class (column) by the
            head, shape ``(C, C)``, int64.
        correct_nme: Correct predictions of each class by the nearest class mean, shape ``(C,)``;
            None if no class means were given.
        total: Number of images of each class, shape ``(C,)``.
        gradient_sum: Sum of the gradient magnitudes |Γ_i| (Eq. 6) over the images of each class,
            shape ``(C,)``, float64. The softmax runs over the columns of seen classes.
        gradient_square_sum: Sum of |Γ_i|², shape ``(C,)``, float64.

    Example:
        >>> import torch
        >>> from avalanche_hfc.metrics import StepCounts
        >>> confusion, zeros = torch.tensor([[9, 1], [2, 8]]), torch.zeros(2, dtype=torch.float64)
        >>> StepCounts(confusion, None, torch.tensor([10, 10]), zeros, zeros).correct
        tensor([9, 8])
    """

    cells: Int[Tensor, "C C"] = field(init=False)
    correct_nme: Int[Tensor, "C"] | None
    total: Int[Tensor, "C"]
    gradient_sum: Float[Tensor, "C"]
    gradient_square_sum: Float[Tensor, "C"]

    def __init__(
        self,
        confusion: Int[Tensor, "C C"],
        correct_nme: Int[Tensor, "C"] | None,
        total: Int[Tensor, "C"],
        gradient_sum: Float[Tensor, "C"],
        gradient_square_sum: Float[Tensor, "C"],
    ):
        vars(self).update(  # the class is frozen
            cells=confusion.to_sparse().coalesce(),
            correct_nme=correct_nme,
            total=total,
            gradient_sum=gradient_sum,
            gradient_square_sum=gradient_square_sum,
        )

    @property
    def confusion(self) -> Int[Tensor, "C C"]:
        """The confusion matrix, dense, shape ``(C, C)``; made anew whenever it is read."""
        return self.cells.to_dense()

    @property
    def correct(self) -> Int[Tensor, "C"]:
        """Correct predictions of each class by the head, shape ``(C,)``."""
        (classes, predicted), counts = self.cells.indices(), self.cells.values()
        right = classes == predicted
        return counts.new_zeros(len(self.total)).index_put((classes[right],), counts[right])


class SeenColumns:
    """The seen columns of a head, selected by `steps` and never by a logit's value."""

    def __init__(self, steps: Int[Tensor, "C"], device: torch.device):
        seen = steps.to(device) >= 0
        self.ids = seen.nonzero().flatten()
        self.rank = seen.cumsum(0) - 1  # class id -> place among the seen columns
        if not len(self.ids):
            raise ValueError(
                f"No class has been seen: all {len(steps)} entries of steps are below 0."
            )
        self.largest = int(self.ids[-1])  # read once: a batch must not wait for it

    def judge(
        self, logits: Float[Tensor, "b W"], targets: Int[Tensor, "b"]
    ) -> tuple[Int[Tensor, "b"], Float[Tensor, "b"]]:
        """Predicted class ids and |Γ| of a batch, on its device. Targets are of seen classes."""
        if logits.shape[1] <= self.largest:
            raise ValueError(
                f"The model gives {logits.shape[1]} columns, but class {self.largest} has "
                "been seen. A column is a class id."
            )
        competing = logits.index_select(1, self.ids)
        return self.ids[competing.argmax(1)], target_gradient(competing, self.rank[targets])


def count(
    targets: Int[Tensor, "N"],
    predicted: Int[Tensor, "N"],
    gradient: Float[Tensor, "N"],
    num_columns: int,
    nearest: Int[Tensor, "N"] | None = None,
) -> StepCounts:
    """The counts of all images of an evaluation, at least one.

    Computed on the host, where sums in float64 have one order and therefore one result. Time and
    memory grow with N + C.
    """
    gradient = gradient.double()
    return StepCounts(
        confusion=torch.sparse_coo_tensor(
            torch.stack([targets, predicted]),
            torch.ones_like(targets),
            (num_columns, num_columns),
            check_invariants=True,
        ),
        correct_nme=None
        if nearest is None
        else torch.bincount(targets[nearest == targets], minlength=num_columns),
        total=torch.bincount(targets, minlength=num_columns),
        gradient_sum=torch.bincount(targets, gradient, num_columns),
        gradient_square_sum=torch.bincount(targets, gradient**2, num_columns),
    )


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
    """Evaluate a model on a data set in one pass and count predictions per class.

    The model is in eval mode during the pass. Afterwards, or after an error, the mode of every
    module and torch's random state are as before.

    Args:
        model: Maps images to logits with a column per class id. With `class_means` it must also
            have the methods `embed` and `classify`.
        dataset: Yields ``(image, class id, ...)`` with class ids of seen classes only.
        steps: For each class the step that introduced it, shape ``(C,)``; -1 for classes not seen
            yet. Only columns of seen classes can be predicted.
        class_means: For each class id the mean feature, shape ``(D,)``. If given, images are also
            classified by the nearest class mean, the largest inner product of the embedding and the
            mean scaled to unit length.
        batch_size: Number of images per forward pass.
        device: Where the model runs. By default the device of its parameters.
        num_workers: Number of worker processes that load images.

    Returns:
        The counts of all classes.

    Raises:
        ValueError: If the data set is empty or contains a class not seen yet, the model has too few
            columns, or the class means do not fit.
        FloatingPointError: If logits are NaN or infinite.

    Example:
        >>> import torch
        >>> from avalanche_hfc.metrics import evaluate
        >>> from torch.utils.data import TensorDataset
        >>> data = TensorDataset(torch.eye(3), torch.tensor([0, 1, 0]))
        >>> evaluate(torch.nn.Identity(), data, torch.tensor([0, 1, -1])).confusion
        tensor([[2, 0, 0],
                [0, 1, 0],
                [0, 0, 0]])
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
    broken: Tensor | int = 0
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
            broken += logits.index_select(1, seen.ids).amax(1).isfinite().logical_not().sum()
    predicted, gradient, *nearest = (torch.cat(column).cpu() for column in zip(*rows, strict=True))
    if broken:
        raise FloatingPointError(
            f"evaluate: the logits of {int(broken)} of {len(predicted)} images are not finite."
        )
    return count(torch.cat(targets), predicted, gradient, len(steps), *nearest)


def _loader(
    dataset: Dataset, batch_size: int, num_workers: int, device: torch.device
) -> DataLoader:
    if len(cast(Sized, dataset)) == 0:
        raise ValueError("evaluate: the data set is empty.")
    collate_fn = getattr(dataset, "collate_fn", None)  # Avalanche's data sets bring one
    pin_memory = device.type == "cuda"
    return DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=num_workers,
        collate_fn=collate_fn,
        pin_memory=pin_memory,
    )


class _NearestMean:
    """Logits and the class with the nearest mean from one embedding.

    The length of the embedding is the same for all classes, so it is not scaled.
    """

    def __init__(
        self,
        model: nn.Module,
        class_means: Mapping[int, Tensor],
        seen: SeenColumns,
        device: torch.device,
    ):
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
    """Check labels on the host, where the loader leaves them, to avoid a synchronisation."""
    inside = labels.clamp(0, len(steps) - 1)
    unseen = labels[(inside != labels) | (steps[inside] < 0)]
    if len(unseen):
        raise ValueError(
            f"evaluate: the data set holds classes not seen yet: {unseen.unique().tolist()}. "
            "Evaluate seen classes only."
        )
