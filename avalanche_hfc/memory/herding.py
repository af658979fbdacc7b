"""Which images of a class to keep: herding and the rules beside it (iCaRL, Alg. 4).

`n` images of one class, `D` features. φ is a feature scaled to unit length (a zero vector stays
zero), μ the mean of φ, not scaled again. For the rule `raw` alone, φ is the feature as it is. All
rules work on the scores <w, φ(x)> of all images: no rule needs a vector of D numbers again once φφᵀ
is known.
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


def herding_order(
    features: Float[Tensor, "n D"], count: int, *, rule: str = "greedy"
) -> Int[Tensor, "k"]:
    """Positions p_1 … p_k of the images to keep, best first, k = min(count, n); int64, on the host.

    - `greedy`: p_k = argmin over the images not yet picked of ‖μ - (φ(x) + Σ_{j<k} φ(p_j)) / k‖.
      `raw`: the same on features not scaled.
    - `icarl-code`: p = argmax <w, φ(x)> over all images, w ← w + μ - φ(p), w = μ at first. An
      image picked again moves w and is not stored.
      After 1000 picks the images never picked follow in their own order, so that the promised
      number comes out.
    - `closest`: by ‖φ(x) - μ‖. `first`: as they stand.

    A longer order begins with the shorter one. Computed in float64; ties go to the lowest position.
    """
    check_rule(rule)
    if count < 0:
        raise ValueError(f"herding_order: count must be 0 or more, got {count}.")
    if len(features) == 0:
        raise ValueError("herding_order: features has no rows. A class needs at least one image.")
    scaled = _Raw(features) if rule == "raw" else _Unit(features)
    return torch.as_tensor(RULES[rule](scaled, min(count, len(features))), dtype=torch.int64)


def check_rule(rule: str) -> None:
    """Refuse a rule that does not exist, with the names of those that do."""
    lookup(RULES, rule, "herding rule")


class _Unit:
    """φ of one class in float64, as the raw features and one factor each: no scaled copy is
    made.
    """

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
        """A function giving <φ(p), φ(x)> of every image for a position p: one column a call for few
        calls, one matrix product for many.
        """
        if 8 * count < len(self):
            return lambda position: (
                self.factor * (self.raw @ (self.factor[position] * self.raw[position]))
            )
        gram = self.raw @ self.raw.T
        gram *= self.factor
        gram *= self.factor[:, None]
        return gram.__getitem__


class _Raw(_Unit):
    """φ as it is, but for one factor that all images share: the longest has length 1. No order
    depends on it, and ties are told as ever.
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
    """‖kμ - Σφ(p_j) - φ‖² = ‖w‖² - 2<w, φ> + ‖φ‖² with w = kμ - Σφ(p_j); ‖φ‖² is 1, or 0 for a zero
    vector, if φ is scaled.
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
