"""Heads with one output per class id, which grow in training and give -1000 for other classes.

`b` samples, `D` features, `K` outputs, `C` columns; a column is a class id.
"""

import math
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

import torch
import torch.nn.functional as F
from avalanche.models import DynamicModule
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from avalanche_hfc._names import lookup
from avalanche_hfc._types import State

UNSEEN_LOGIT = -1000.0
"""The logit of a class that has not been trained: `mask_value` of Avalanche's
IncrementalClassifier.
"""
LARGEST_CLASS_ID = 99_999  # a class id is a column: more of them are ids of something else

STARTS = {
    "hfc": "as nn.Linear in the first step, then weights N(0, 1/D) and bias U(±1/√D)",
    "linear": "as nn.Linear: weights and bias U(±1/√D)",
    "normal": "weights N(0, 1/D), bias 0",
    "uniform": "weights U(±√(3/D)), bias 0",
}


def closeness(cosine: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """-‖a - b‖² of unit vectors a, b from their cosine."""
    return 2 * cosine - 2


def check_class_ids(owner: str, class_ids: Iterable[object]) -> list[int]:
    """Class ids as sorted Python integers, each once; a ValueError names one that is no column."""
    checked = set()
    for class_id in class_ids:
        number = class_id.item() if isinstance(class_id, Tensor) else class_id
        if isinstance(number, bool) or not hasattr(number, "__index__"):
            raise ValueError(
                f"{owner}: a label must be a whole number, the id of a class; got {class_id!r} "
                f"({type(number).__name__})."
            )
        checked.add(operator.index(number))
    for class_id in (min(checked, default=0), max(checked, default=0)):
        if not 0 <= class_id <= LARGEST_CLASS_ID:
            raise ValueError(
                f"{owner}: a class id is a column of the head and must be 0 or more, at most "
                f"{LARGEST_CLASS_ID}, got {class_id}. Number the classes from 0."
            )
    return sorted(checked)


def take_rows(module: nn.Module, state_dict: State, prefix: str) -> None:
    """Give the tensors of a module as many rows as come in. Parameters are then new ones."""
    for name, tensor in [
        *module.named_parameters(recurse=False),
        *module.named_buffers(recurse=False),
    ]:
        incoming = state_dict.get(prefix + name)
        if incoming is None or not tensor.ndim or incoming.shape[1:] != tensor.shape[1:]:
            continue
        if len(incoming) != len(tensor):
            rows = tensor.new_zeros(incoming.shape)
            is_parameter = isinstance(tensor, nn.Parameter)
            setattr(
                module, name, nn.Parameter(rows, tensor.requires_grad) if is_parameter else rows
            )


class ClassColumns(DynamicModule):
    """A head with a column per class id, which grows in training.

    In evaluation its outputs are padded with -1000 and nothing else changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._padded_width = 0

    def adaptation(self, experience: Any) -> None:
        """In training mode, grow by the classes of the experience.

        In eval mode only the width of later outputs is remembered, until training resumes.

        Args:
            experience: An Avalanche experience with `classes_in_this_experience`.
        """
        class_ids = experience.classes_in_this_experience
        if self.training:
            self.grow(class_ids)
        else:
            widths = (class_id + 1 for class_id in self._checked(class_ids))
            self._padded_width = max([self._padded_width, *widths])

    def grow(self, class_ids: Iterable[SupportsIndex]) -> None:
        """Add columns for new classes; columns of classes seen before keep their values.

        Args:
            class_ids: Class ids, new or seen before.

        Raises:
            ValueError: If a class id is negative.
        """
        raise NotImplementedError

    def _checked(self, class_ids: Iterable[SupportsIndex]) -> list[int]:
        """Class ids as sorted Python integers, each once."""
        return check_class_ids(type(self).__name__, class_ids)

    def train(self, mode: bool = True) -> "ClassColumns":
        """Set the mode as in torch; forgets the width remembered by an evaluation that has ended.

        Args:
            mode: True for training, False for evaluation.

        Returns:
            The module itself.
        """
        if mode or self.training:
            self._padded_width = 0
        super().train(mode)
        return self

    def _load_from_state_dict(self, state_dict: State, prefix: str, *args: object) -> None:
        """Accept any number of rows."""
        take_rows(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def padded(self, logits: Float[Tensor, "*b C"]) -> Float[Tensor, "*b padded"]:
        """Pad logits with -1000 up to the largest class id of the current evaluation.

        Args:
            logits: Logits of shape ``(*b, C)``.

        Returns:
            Logits with at least as many columns; unchanged in training mode.
        """
        missing = 0 if self.training else self._padded_width - logits.shape[-1]
        return F.pad(logits, (0, missing), value=UNSEEN_LOGIT) if missing > 0 else logits


class GrowingColumns(ClassColumns):
    """A head whose `K` outputs are spread over the `C` columns of their class ids.

    C is the largest trained class id + 1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.out_features = 0  # C
        self._known: set[int] = set()  # the same as `class_ids`, without asking the device

    def class_ids(self) -> Int[Tensor, "K"]:
        """The class id of each output.

        Returns:
            Class ids of shape ``(K,)``, in the order of the outputs.
        """
        raise NotImplementedError

    @property
    def seen(self) -> Bool[Tensor, "C"]:
        """Which columns belong to trained classes, shape ``(C,)``."""
        class_ids = self.class_ids()
        return torch.zeros(self.out_features, dtype=torch.bool, device=class_ids.device).index_fill(
            0, class_ids, True
        )

    def grow(self, class_ids: Iterable[SupportsIndex]) -> None:
        """Add outputs for new classes, all of one step; outputs of other classes keep their values.

        Args:
            class_ids: Class ids, new or seen before.

        Raises:
            ValueError: If a class id is negative.
        """
        arriving = [
            class_id for class_id in self._checked(class_ids) if class_id not in self._known
        ]
        if arriving:
            self._add(arriving)
            self._know([*self._known, *arriving])

    def _add(self, class_ids: list[int]) -> None:
        raise NotImplementedError

    def _know(self, class_ids: list[int]) -> None:
        """Record that these classes, and only these, have outputs."""
        self._known = set(class_ids)
        self.out_features = max(class_ids, default=-1) + 1

    def spread(self, outputs: Float[Tensor, "b K"]) -> Float[Tensor, "b C"]:
        """Put each output in the column of its class, and -1000 without gradient in the others.

        Args:
            outputs: One output per trained class, shape ``(b, K)``.

        Returns:
            Logits of shape ``(b, C)``.
        """
        return self.padded(
            outputs.new_full((outputs.shape[0], self.out_features), UNSEEN_LOGIT).index_copy(
                1, self.class_ids(), outputs
            )
        )


class GrowingLinear(ClassColumns):
    """A linear head that grows with the classes: D → C, one row per class id.

    C is the largest trained class id + 1; at first there is no row. Columns of classes that were
    never trained are exactly -1000 and give no gradient. Their rows stay zero until the class
    arrives, so that weight decay cannot shrink them before. Growing creates new parameters under
    the same names (`weight`, `bias`); an optimizer must be updated, which Avalanche's strategies
    do. `seen` marks the trained classes, shape ``(C,)``.

    Args:
        in_features: Width D of the embedding.
        start: How a new row is initialised. ``"hfc"``: as `nn.Linear` in the first step, then
            weights N(0, 1/D) and bias U(±1/√D), as in HFC's released code. ``"linear"``: as
            `nn.Linear` (SS-IL). ``"normal"``: weights N(0, 1/D), bias 0 (iCaRL). ``"uniform"``:
            weights U(±√(3/D)), bias 0 (FOSTER).

    Shape:
        Embeddings ``(*b, D)`` in, logits ``(*b, C)`` out.

    Raises:
        ValueError: If `start` is unknown.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import GrowingLinear
        >>> head = GrowingLinear(4)
        >>> head.grow([0, 2])
        >>> head(torch.zeros(1, 4))[0, 1].item()
        -1000.0
    """

    seen: Tensor

    def __init__(self, in_features: int, *, start: str = "hfc"):
        super().__init__()
        lookup(STARTS, start, "start")
        self.in_features = in_features
        self.start = start
        self.weight = nn.Parameter(torch.empty(0, in_features))
        self.bias = nn.Parameter(torch.empty(0))
        self.register_buffer("seen", torch.empty(0, dtype=torch.bool))

    @property
    def out_features(self) -> int:
        """Number of columns C."""
        return self.weight.shape[0]

    @torch.no_grad()
    def grow(self, class_ids: Iterable[SupportsIndex]) -> None:
        """Initialise a row for each new class; rows of classes seen before keep their values.

        Args:
            class_ids: Class ids, new or seen before.

        Raises:
            ValueError: If a class id is negative.
        """
        arriving = self._checked(class_ids)
        if not arriving:
            return
        self._resize(max(self.out_features, arriving[-1] + 1))
        already_seen = [False] * self.out_features if self.seen.is_meta else self.seen.tolist()
        first = not any(already_seen)
        for class_id in arriving:
            if not already_seen[class_id]:
                self._draw(self.weight[class_id], self.bias[class_id], first)
                self.seen[class_id] = True

    def _draw(self, weight: Float[Tensor, "D"], bias: Float[Tensor, ""], first: bool) -> None:
        """Initialise one row in place; `first`: no class was seen before this step."""
        bound = 1 / math.sqrt(self.in_features)
        if self.start == "normal" or (self.start == "hfc" and not first):
            weight.normal_(0, bound)
        else:
            bound_of_weights = math.sqrt(3) * bound if self.start == "uniform" else bound
            weight.uniform_(-bound_of_weights, bound_of_weights)
        if self.start in ("hfc", "linear"):
            bias.uniform_(-bound, bound)
        else:
            bias.zero_()

    def _resize(self, rows: int) -> None:
        """Replace the parameters by others with this number of rows; added rows are zero."""
        missing = rows - self.out_features
        if missing:
            weight = F.pad(self.weight.detach(), (0, 0, 0, missing))
            bias = F.pad(self.bias.detach(), (0, missing))
            self.weight = nn.Parameter(weight, requires_grad=self.weight.requires_grad)
            self.bias = nn.Parameter(bias, requires_grad=self.bias.requires_grad)
            self.seen = F.pad(self.seen, (0, missing))

    def forward(self, embedding: Float[Tensor, "*b D"]) -> Float[Tensor, "*b C"]:
        return self.padded(
            F.linear(embedding, self.weight, self.bias).masked_fill(~self.seen, UNSEEN_LOGIT)
        )

    def _load_from_state_dict(self, state_dict: State, prefix: str, *args: object) -> None:
        """Accept the state of a plain linear layer, too."""
        incoming = state_dict.get(prefix + "weight")
        # a plain linear layer: all its rows are in use
        if incoming is not None and prefix + "seen" not in state_dict:
            state_dict[prefix + "seen"] = torch.ones(len(incoming), dtype=torch.bool)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


class AllClassesLinear(GrowingLinear):
    """A linear head with a row for every class of the benchmark from the first step on.

    In training mode it gives the logits of classes to come as well, so that they can be trained, in
    eval mode -1000. `num_classes`, the number of rows, is set before the head grows first.

    Args:
        in_features: Width D of the embedding.
        start: As in `GrowingLinear`.

    Shape:
        Embeddings ``(*b, D)`` in, logits ``(*b, num_classes)`` out.

    Example:
        >>> import torch
        >>> from avalanche_hfc.models import AllClassesLinear
        >>> head = AllClassesLinear(4)
        >>> head.num_classes = 3
        >>> head.grow([0, 2])
        >>> head.eval()(torch.zeros(1, 4))[0, 1].item()
        -1000.0
    """

    num_classes = 0

    @torch.no_grad()
    def grow(self, class_ids: Iterable[SupportsIndex]) -> None:
        arriving = self._checked(class_ids)
        if arriving and arriving[-1] >= max(self.num_classes, self.out_features):
            raise ValueError(
                f"AllClassesLinear: class {arriving[-1]} is outside num_classes={self.num_classes}."
            )
        if not self.out_features:
            self._resize(self.num_classes)
            for weight, bias in zip(self.weight, self.bias, strict=True):
                self._draw(weight, bias, first=True)
        self.seen[arriving] = True

    def forward(self, embedding: Float[Tensor, "*b D"]) -> Float[Tensor, "*b C"]:
        if not self.training:
            return super().forward(embedding)
        return F.linear(embedding, self.weight, self.bias)
