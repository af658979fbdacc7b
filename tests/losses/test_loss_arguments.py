"""What the losses say to arguments that they cannot take."""

import re

import pytest
import torch

from avalanche_hfc import STRATEGIES, losses
from avalanche_hfc.losses import (
    class_weights,
    divergence_binary_cross_entropy,
    forgetting_compensation,
    official_hfc,
    relation_distillation,
)

LOGITS, TARGETS = torch.zeros(4, 3), torch.tensor([0, 1, 2, 2])
TEACHER, STEPS = torch.zeros(4, 2), torch.tensor([0, 0, 1])
VALIDATED = {
    "forgetting_compensation": lambda targets, steps, **options: forgetting_compensation(
        LOGITS, targets, steps, **options
    ),
    "relation_distillation": lambda targets, steps, **options: relation_distillation(
        LOGITS, targets, TEACHER, steps, **options
    ),
    "official_hfc": lambda targets, steps, **options: official_hfc(
        LOGITS, targets, TEACHER, steps, **options
    ),
}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"logits": [[0.0, 1.0, 2.0]] * 4}, "logits must be a tensor, got list."),
        ({"targets": [0, 1, 2, 2]}, "targets must be a tensor, got list."),
        ({"logits": None}, "logits must be a tensor, got NoneType."),
        ({"targets": TARGETS.float()}, "targets must hold whole numbers, got torch.float32."),
        ({"targets": TARGETS > 0}, "targets must hold whole numbers, got torch.bool."),
        ({"logits": LOGITS.long()}, "logits must hold floating-point numbers, got torch.int64."),
        (
            {"logits": LOGITS.cfloat()},
            "logits must hold floating-point numbers, got torch.complex64.",
        ),
        ({"logits": LOGITS[0]}, "logits must have shape (b, C), got (3,)."),
        ({"targets": TARGETS[:, None]}, "targets must have shape (b), got (4, 1)."),
        (
            {"targets": TARGETS[:3]},
            "targets has shape (3,), but logits has b = 4; targets must have shape (b).",
        ),
        (
            {"steps": torch.tensor([0, 0, 1, 1])},
            "steps has shape (4,), but logits has C = 3; steps must have shape (C).",
        ),
        (
            {"teacher_logits": torch.zeros(5, 2)},
            "teacher_logits has shape (5, 2), but logits has b = 4; teacher_logits must have "
            "shape (b, K).",
        ),
        (
            {"weights": torch.ones(3)},
            "weights has shape (3,), but logits has b = 4; weights must have shape (b).",
        ),
    ],
)
def test_a_tensor_of_another_type_or_shape_is_named(changed, message):
    given = {"logits": LOGITS, "targets": TARGETS, "teacher_logits": TEACHER, "steps": STEPS}
    with pytest.raises(ValueError, match=f"^{re.escape('relation_distillation: ' + message)}$"):
        relation_distillation(**{**given, **changed})


def test_what_an_annotation_allows_is_taken():
    """Either kind of number, None where it has a meaning, and more columns of logits than classes."""
    counts = torch.tensor([3, 4, 5])
    assert torch.equal(
        class_weights(counts, STEPS, beta=0.5), class_weights(counts.float(), STEPS, beta=0.5)
    )
    assert official_hfc(LOGITS, TARGETS, None, torch.zeros(3, dtype=torch.int32)).isfinite()
    wide = torch.zeros(4, 5)
    assert divergence_binary_cross_entropy(wide, (TARGETS > 1).long(), STEPS).isfinite().all()
    weights = torch.ones(4)
    assert relation_distillation(LOGITS, TARGETS, TEACHER, STEPS, weights=None).isfinite()
    assert relation_distillation(LOGITS, TARGETS, TEACHER, STEPS, weights=weights).isfinite()


@pytest.mark.parametrize("name", VALIDATED)
@pytest.mark.parametrize(
    ("label", "message"),
    [
        (3, "targets has class id 3, allowed are 0…2."),
        (-1, "targets has class id -1, allowed are 0…2."),
        (2, "targets has class id 2, which no step has introduced: its entry in steps is -1."),
    ],
)
def test_labels_are_checked_on_request(name, label, message):
    targets, steps = torch.tensor([0, 1, 1, label]), torch.tensor([0, 1, -1])
    with pytest.raises(ValueError, match=f"^{re.escape(f'{name}: {message}')}$"):
        VALIDATED[name](targets, steps, validate=True)


@pytest.mark.parametrize("name", VALIDATED)
def test_right_labels_pass_and_the_value_is_the_same(name):
    checked = VALIDATED[name](TARGETS, STEPS, validate=True)
    assert torch.equal(checked, VALIDATED[name](TARGETS, STEPS))


def test_every_public_function_of_tensors_is_checked():
    plain = [
        name
        for name in losses.__all__
        if "Tensor" in str(getattr(losses, name).__annotations__)
        and not hasattr(getattr(losses, name), "__wrapped__")
    ]
    assert plain == []


def test_an_unknown_strategy_is_answered_with_the_nearest():
    for kind in (KeyError, ValueError):
        with pytest.raises(kind, match=r"^Unknown method 'pod'\. Known: hfc, .*'podnet'\?$"):
            STRATEGIES["pod"]
    assert STRATEGIES.get("pod") is None and "pod" not in STRATEGIES
