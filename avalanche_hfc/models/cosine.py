"""The cosine head of PODNet and AFC: several proxies per class, local similarity classifier (LSC).

`b` samples, `D` features, `P` proxies per class, `K` classes seen, `C` columns; a column is a class
id.
"""

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from avalanche_hfc._types import State
from avalanche_hfc.models.columns import GrowingColumns, check_phase


class CosineHead(GrowingColumns):
    """u_c = η Σ_p a_cp s_cp, a_cp = softmax_p(s_cp), s_cp = sharpness · (2 cos(f, θ_cp) - 2); η =
    `scale`, learned, first 1.

    The proxies of the newest step are a parameter of their own, `new_proxies`; those of all steps
    before are `old_proxies`. So the old ones can rest while the new ones train: a frozen parameter
    gets no weight decay either. Growth joins both, makes new proxies (Kaiming normal; `imprint`
    overwrites them) and starts the phase "train": old proxies rest. In the phase "tune" all proxies
    train, η rests. Growth makes new parameters under the old names: an optimizer must be told.
    `learn_scale=False` (η = 1) with sharpness 9 is PODNet's setting for nearest means.
    """

    old_ids: Tensor
    new_ids: Tensor

    def __init__(
        self,
        in_features: int,
        *,
        num_proxies: int = 10,
        sharpness: float | int = 1.0,
        learn_scale: bool = True,
    ):
        super().__init__()
        for name, number in (("in_features", in_features), ("num_proxies", num_proxies)):
            if number < 1:
                raise ValueError(f"CosineHead: {name} must be at least 1, got {number}.")
        if sharpness <= 0:
            raise ValueError(f"CosineHead: sharpness must be above 0, got {sharpness}.")
        self.in_features = in_features
        self.num_proxies = num_proxies
        self.sharpness = sharpness
        self.learn_scale = learn_scale
        self.old_proxies = nn.Parameter(
            torch.empty(0, num_proxies, in_features), requires_grad=False
        )
        self.new_proxies = nn.Parameter(torch.empty(0, num_proxies, in_features))
        self.scale = nn.Parameter(torch.ones(()), requires_grad=learn_scale)
        self.register_buffer("old_ids", torch.empty(0, dtype=torch.long))
        self.register_buffer("new_ids", torch.empty(0, dtype=torch.long))

    def class_ids(self) -> Int[Tensor, "K"]:
        return torch.cat([self.old_ids, self.new_ids])

    @torch.no_grad()
    def _add(self, class_ids: list[int]) -> None:
        old = torch.cat([self.old_proxies, self.new_proxies])
        new = self.new_proxies.new_empty(
            len(class_ids), self.num_proxies, self.in_features
        ).normal_(0, 1 / math.sqrt(self.in_features))
        self.old_ids = self.class_ids()
        self.new_ids = self.old_ids.new_tensor(class_ids)
        self.old_proxies = nn.Parameter(old)
        self.new_proxies = nn.Parameter(new)
        self.set_phase("train")

    def set_phase(self, phase: str) -> None:
        """Which parameters train."""
        check_phase("CosineHead", phase)
        self.old_proxies.requires_grad_(phase == "tune")
        self.new_proxies.requires_grad_()
        self.scale.requires_grad_(phase == "train" and self.learn_scale)

    @torch.no_grad()
    def imprint(self, centres: Mapping[int, Tensor]) -> None:
        """Put centres (P, D) of unit features, `proxy_centres`, in the place of the newest proxies,
        at the old proxies' mean norm.

        In the first step, where there is no old proxy, they are taken as they are. Each class of
        the newest step must be given.
        """
        newest = self.new_ids.tolist()
        if set(centres) != set(newest):
            raise ValueError(
                f"CosineHead: imprint needs centres of the newest classes {newest}, got "
                f"{sorted(centres)}."
            )
        norm = self.old_proxies.norm(dim=-1).mean() if len(self.old_ids) else 1.0
        shape = (self.num_proxies, self.in_features)
        for row, class_id in enumerate(newest):
            if centres[class_id].shape != shape:
                raise ValueError(
                    f"CosineHead: class {class_id} needs centres {shape}, got "
                    f"{tuple(centres[class_id].shape)}."
                )
            self.new_proxies[row] = centres[class_id].to(self.new_proxies) * norm

    def similarity(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b K"]:
        """ŷ of each class in the order of `class_ids`, in [-4 · sharpness, 0]."""
        proxies = torch.cat([self.old_proxies, self.new_proxies])
        cosine = torch.einsum(
            "bD,KPD->bKP", F.normalize(embedding, dim=-1), F.normalize(proxies, dim=-1)
        )
        closeness = self.sharpness * (2 * cosine - 2)
        return (closeness.softmax(-1) * closeness).sum(-1)

    def forward(self, embedding: Float[Tensor, "b D"]) -> Float[Tensor, "b C"]:
        return self.spread(self.scale * self.similarity(embedding))

    def _load_from_state_dict(self, state_dict: State, prefix: str, *args: object) -> None:
        """Take as many proxies as come in. The parameters are then new ones, as after growth."""
        for age in ("old", "new"):
            own: Tensor = getattr(self, f"{age}_proxies")
            incoming = state_dict.get(f"{prefix}{age}_proxies")
            if (
                incoming is not None
                and incoming.shape[1:] == own.shape[1:]
                and len(incoming) != len(own)
            ):
                proxies = nn.Parameter(
                    own.new_zeros(incoming.shape), requires_grad=own.requires_grad
                )
                setattr(self, f"{age}_proxies", proxies)
                setattr(self, f"{age}_ids", self.old_ids.new_zeros(len(incoming)))
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._know(self.class_ids().tolist())

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, num_proxies={self.num_proxies}, "
            f"classes={len(self.old_ids) + len(self.new_ids)}"
        )
