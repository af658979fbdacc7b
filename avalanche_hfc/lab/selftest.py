"""Checks of an installation, in seconds: formulas against loops, golden values, class orders, one
stop and resume.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import torch
from avalanche.training.plugins import SupervisedPlugin
from torch import Tensor

from avalanche_hfc._types import Experience, Options, State, Strategy
from avalanche_hfc.benchmarks import class_order, split_digits
from avalanche_hfc.losses import forgetting_compensation, official_hfc, relation_distillation
from avalanche_hfc.models import DyToxModel, TSAViT, ViTEncoder
from avalanche_hfc.strategies import STRATEGIES

LOGITS = (
    (2, 0.5, 0, 1, -1, 0),
    (0, 1.5, 0.5, 0, 2, 0),
    (-0.5, 3, 0, 0, 0.5, 0.5),
    (0, 0, 1, 0, 1, 0),
    (0.5, 0, -1, 0, 2.5, 0),
    (1, 0, 0, 0, 0, 0.5),
)
TEACHER = ((3, 0, 0.5, 0), (0, 2, 0, 0), (0, 4, 1, 0), (0.5, 0, 2, 0), (1, 0, 0, 0), (0, 0, 0, 0))
TARGETS = (0, 1, 1, 2, 4, 4)
STEPS = (0, 0, 1, 1, 2, 2)
GOLDEN = {
    "L_FC": 1.122656,
    "L_RD as printed": 0.494086,
    "L_RD normalised": 0.357272,
    "released loss": 1.011445,
}
ORDERS = {  # sha256 of the class ids joined by commas
    "cifar100-a": "62e36f48cf4f51c7f8af22782b6e82a508419bb57eb217ce0c365060eff49b5a",
    "imagenet100": "997a048a5344d216db0a03489cfdfd9b82e9353c7e9494f77f8d8bca56121c7e",
    "imagenet1000": "305571fb8fde3e0ff2de05aeaa7361c205aacbaa84a0a01e3c1167ce2b7218e4",
}
STOPS = {"hfc": "after_training_epoch", "dytox": "after_phase_epoch"}
Check = tuple[str, Callable[[], None]]
SMALL_VIT: Options = {
    "backbone": "vit_tiny_patch16_224",
    "image_size": 8,
    "patch_size": 4,
    "msa_blocks": 1,
    "backbone_options": {"embed_dim": 16, "num_heads": 2, "in_chans": 1},
}


class Failed(Exception):
    """A check that did not hold, in words."""


def checks() -> Iterator[Check]:
    """Name and check, one after the other. A check raises `Failed`."""
    yield "L_FC is Eq. 9, as a loop", lambda: close(measured("L_FC"), loop_compensation(), 1e-12)
    yield (
        "L_RD is Eq. 13, as a loop",
        lambda: close(measured("L_RD as printed"), loop_relation(), 1e-12),
    )
    for name, value in GOLDEN.items():
        yield f"golden value of {name}", partial(golden, name, value)
    for name, published in ORDERS.items():
        yield f"class order {name}", partial(same_order, name, published)
    for method, stop_at in STOPS.items():
        yield (
            f"{method}: stop within a step, resume, same weights",
            partial(resumes, method, stop_at),
        )


def golden(name: str, value: float) -> None:
    close(measured(name), value, 2e-6)


def close(found: float, expected: float, tolerance: float) -> None:
    if not abs(found - expected) <= tolerance:
        raise Failed(f"{found!r}, expected {expected!r} ± {tolerance:g}")


def measured(name: str) -> float:
    logits, teacher = (torch.tensor(rows, dtype=torch.float64) for rows in (LOGITS, TEACHER))
    targets, steps = torch.tensor(TARGETS), torch.tensor(STEPS)
    printed: Options = {"normalise": False, "average": "seen"}
    return {
        "L_FC": lambda: forgetting_compensation(logits, targets, steps),
        "L_RD as printed": lambda: relation_distillation(
            logits, targets, teacher, steps, **printed
        ),
        "L_RD normalised": lambda: relation_distillation(logits, targets, teacher, steps),
        "released loss": lambda: official_hfc(logits, targets, teacher, steps),
    }[name]().item()


def softmax(row: Sequence[float | int]) -> list[float]:
    total = sum(math.exp(value) for value in row)
    return [math.exp(value) / total for value in row]


def loop_weights() -> list[float]:
    """Weights of Eq. 9: K^o = 4, K^t = 2."""
    pairs = list(zip(LOGITS, TARGETS, strict=True))
    sharpened = [math.log(abs(softmax(row)[y] - 1) ** (4 / 6) + 1) for row, y in pairs]
    weights = []
    for value, y in zip(sharpened, TARGETS, strict=True):
        of_step = [sharpened[i] for i, k in enumerate(TARGETS) if STEPS[k] == STEPS[y]]
        weights.append(value / (sum(of_step) / len(of_step)))
    return weights


def loop_compensation() -> float:
    rows = zip(LOGITS, TARGETS, loop_weights(), strict=True)
    return sum(-w * math.log(softmax(row)[y]) for row, y, w in rows) / len(TARGETS)


def loop_relation() -> float:
    """Eq. 10-13 as printed: KL(Ỹ_k ‖ P̃_k), mean over the six classes seen."""
    weights, total = loop_weights(), 0.0
    for k in sorted(set(TARGETS)):
        of_step = [i for i, y in enumerate(TARGETS) if y == k]
        prediction = [sum(softmax(LOGITS[i])[c] for i in of_step) / len(of_step) for c in range(6)]
        relation = [
            sum(softmax(TEACHER[i])[c] for i in of_step) / len(of_step) if c < 4 else float(c == k)
            for c in range(6)
        ]
        divergence = sum(
            t * math.log(t / p) for t, p in zip(relation, prediction, strict=True) if t > 0
        )
        total += sum(weights[i] for i in of_step) / len(of_step) * divergence
    return total / 6


def same_order(name: str, published: str) -> None:
    digest = hashlib.sha256(
        ",".join(str(class_id) for class_id in class_order(name)).encode()
    ).hexdigest()
    if digest != published:
        raise Failed(f"sha256 {digest}, published {published}")


class StopHere(Exception):
    """Ends a training as a kill would: nothing of it is used but the state saved before."""


class StopAfter(SupervisedPlugin):
    """A plugin that takes the state at an event of the second step, the first time, and stops
    there.
    """

    def __init__(self, event: str):
        super().__init__()
        self.state: State | None = None
        setattr(self, event, self.stop)

    def stop(self, strategy: Strategy, **kwargs: object) -> None:
        if strategy.clock.train_exp_counter == 1:
            self.state = strategy.state_dict()
            raise StopHere


def resumes(method: str, stop_at: str) -> None:
    """The weights after two steps are the same, bit for bit, if the second step is interrupted and
    resumed in a new strategy.
    """
    stream = split_digits(num_steps=5).train_stream[:2]
    stopper = StopAfter(stop_at)
    with suppress(StopHere):
        train(small(method, stopper), stream)
    if stopper.state is None:
        raise Failed("the training was not stopped")
    resumed = small(method, StopAfter("never"), seed=1)
    resumed.load_state_dict(stopper.state)
    found = train(resumed, stream[1:])
    whole = train(small(method, StopAfter("never")), stream)
    different = [name for name, value in whole.items() if not torch.equal(value, found[name])]
    if different:
        raise Failed(f"{len(different)} of {len(whole)} parameters differ, {different[0]} first")


def small(method: str, plugin: SupervisedPlugin, seed: int = 0) -> Strategy:
    torch.manual_seed(seed)
    dytox = method == "dytox"
    model = DyToxModel(ViTEncoder(**SMALL_VIT)) if dytox else TSAViT(**SMALL_VIT)
    return STRATEGIES[method](
        model=model,
        optimizer=torch.optim.AdamW(model.parameters()),
        mem_size=20,
        train_mb_size=64,
        train_epochs=2,
        eval_mb_size=256,
        plugins=[plugin],
        evaluator=None,
        **({"tune_epochs": 2} if dytox else {}),
    )


def train(strategy: Strategy, stream: Iterable[Experience]) -> dict[str, Tensor]:
    """Its weights, when it has trained on all of these."""
    for experience in stream:
        strategy.train(experience)
    return dict(strategy.model.state_dict())
