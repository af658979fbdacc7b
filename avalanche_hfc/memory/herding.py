"""Which images of a class to keep: herding (iCaRL, Alg. 4) and other rules.

`n` images of one class, `D` features. φ is a feature scaled to unit length (a zero vector stays
zero), μ the mean of φ, not scaled again. For the rule `raw`, φ is the feature itself. All rules use
the scores <w, φ(x)> of all images: once φφᵀ is known, no rule needs a vector of D numbers. Of a
large class it is never held as a whole.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from avalanche_hfc._names import lookup

# scores closer than this are equal, and the lowest position wins: rounding must not decide between
# copies of an image
TIE = 1e-10
MOST_PICKS = 1000  # where iCaRL's code, and HFC's after it, stops
MOST_BYTES = 2**29  # of φφᵀ in float64: 8192 images


def herding_order(
    features: Float[Tensor, "n D"], count: int, *, rule: str = "greedy"
) -> Int[Tensor, "k"]:
    """Choose images of one class as exemplars, best first.

    With φ the feature scaled to unit length and μ the mean of φ, the rules are:

    - ``"greedy"``: the k-th image minimises ‖μ - (φ(x) + Σ_{j<k} φ(p_j)) / k‖ among the images not
      chosen yet (iCaRL, Alg. 4).
    - ``"raw"``: the same on features that are not scaled.
    - ``"icarl-code"``: iCaRL's and HFC's released code. The next image maximises <w, φ(x)> among
      all images, then w ← w + μ - φ(p); w = μ at first. An image chosen again changes w but is not
      stored twice. After 1000 choices the remaining images follow in their order.
    - ``"closest"``: in order of ‖φ(x) - μ‖.
    - ``"first"``: in their order.

    Computed in float64; ties go to the lowest position. A longer result begins with the shorter
    one.

    Args:
        features: Features of all images of the class, shape ``(n, D)``.
        count: Number of images to choose.
        rule: Name of the rule.

    Returns:
        Row numbers of the chosen images, shape ``(min(count, n),)``, int64, on the CPU.

    Raises:
        ValueError: If the rule is unknown, or a feature is not finite.

    Example:
        >>> import torch
        >>> from avalanche_hfc.memory import herding_order
        >>> features = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> herding_order(features, 2)
        tensor([1, 0])
    """
    choose = lookup(RULES, rule, "herding rule")
    scaled = _Raw(features) if rule == "raw" else _Unit(features)
    return torch.as_tensor(choose(scaled, min(count, len(features))), dtype=torch.int64)


class _Unit:
    """φ of one class in float64, as raw features and one factor each; no scaled copy is made."""

    def __init__(self, features: Float[Tensor, "n D"]):
        self.raw = features.detach().to("cpu", torch.float64).numpy()
        squares = np.einsum("nd,nd->n", self.raw, self.raw)
        broken = np.flatnonzero(~np.isfinite(squares))
        if len(broken):
            raise ValueError(
                f"herding_order: {len(broken)} of {len(squares)} features are not finite, "
                f"the first at position {broken[0]}."
            )
        self.nonzero = squares > 0
        self.factor = self.nonzero / np.sqrt(np.where(self.nonzero, squares, 1.0))
        self.squares: np.ndarray = self.nonzero  # ‖φ‖²

    def __len__(self) -> int:
        return len(self.raw)

    def mean_products(self) -> np.ndarray:
        """<μ, φ(x)> of every image, (n,)."""
        return self.factor * (self.raw @ (self.factor @ self.raw)) / len(self)

    def products(self, count: int) -> Callable[[int], np.ndarray]:
        """A function that gives <φ(p), φ(x)> of every image for a position p.

        For few calls, and where φφᵀ would need more than MOST_BYTES, it computes one column per
        call; for many a single matrix product.
        """
        if 8 * count < len(self) or 8 * len(self) ** 2 > MOST_BYTES:
            return lambda position: (
                self.factor * (self.raw @ (self.factor[position] * self.raw[position]))
            )
        gram = self.raw @ self.raw.T
        gram *= self.factor
        gram *= self.factor[:, None]
        return gram.__getitem__


class _Raw(_Unit):
    """φ as the features are, except for one common factor that gives the longest the length 1.

    No order depends on the factor, and ties are recognised by the same tolerance.
    """

    def __init__(self, features: Float[Tensor, "n D"]):
        super().__init__(features)
        squares = np.einsum("nd,nd->n", self.raw, self.raw)
        longest = squares.max() or 1.0
        self.squares = squares / longest
        self.factor = np.full(len(self), 1 / np.sqrt(longest))


def _best(scores: np.ndarray) -> int:
    return int((scores > scores[scores.argmax()] - TIE).argmax())


def _greedy(unit: _Unit, count: int) -> list[int]:
    """Scores from ‖kμ - Σφ(p_j) - φ‖² = ‖w‖² - 2<w, φ> + ‖φ‖² with w = kμ - Σφ(p_j).

    For scaled features ‖φ‖² is 1, or 0 for a zero vector.
    """
    products, pull = unit.products(count), unit.mean_products()
    scores = pull - unit.squares / 2
    order: list[int] = []
    while len(order) < count:
        order.append(_best(scores))
        scores += pull
        scores -= products(order[-1])
        scores[order[-1]] = -np.inf
    return order


def _icarl_code(unit: _Unit, count: int) -> list[int]:
    products, pull = unit.products(count), unit.mean_products()
    scores = pull.copy()
    order: dict[int, None] = {}  # a dict keeps the order of first picks
    for _ in range(MOST_PICKS):
        if len(order) == count:
            break
        pick = _best(scores)
        order.setdefault(pick)
        scores += pull
        scores -= products(pick)
    return list(order | dict.fromkeys(range(len(unit))))[:count]


def _closest(unit: _Unit, count: int) -> list[int]:
    scores = unit.mean_products() - unit.squares / 2
    order: list[int] = []
    while len(order) < count:
        order.append(_best(scores))
        scores[order[-1]] = -np.inf
    return order


def _first(unit: _Unit, count: int) -> list[int]:
    return list(range(count))


RULES: dict[str, Callable[[_Unit, int], list[int]]] = {
    "greedy": _greedy,
    "icarl-code": _icarl_code,
    "closest": _closest,
    "first": _first,
    "raw": _greedy,
}
"""The herding rules by name, as `herding_order` takes them."""
