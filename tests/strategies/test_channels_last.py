"""Convolutional networks with the channels last in memory: the same training, up to rounding."""

import io

import method_runs
import pytest
import torch
from strategy_runs import At, benchmark_of, differing, mlp, train, vit

from avalanche_hfc.models import ResNet32
from avalanche_hfc.plugins import FrozenTeacher

METHODS = {"icarl": {}, "foster": {"compress_epochs": 1}}  # the second trains a student in a phase
LAST = torch.channels_last


def in_colours(image):
    return image.expand(3, 8, 8)


def images():
    return benchmark_of(train_transform=in_colours, eval_transform=in_colours)


def build(name, **options):
    torch.manual_seed(2)
    return method_runs.build(
        name, model=ResNet32(), lr=0.01, train_epochs=1, **METHODS[name], **options
    )


def kernels(model):
    return [p for p in model.parameters() if p.dim() == 4]


def is_last(tensor):
    return tensor.is_contiguous(memory_format=LAST) and not tensor.is_contiguous()


def watch(strategy, met):
    """Notes where images are met, and whether their channels and those of the kernels are last."""

    def note(where, model, x):
        met.setdefault(where, set()).add((is_last(x), *{is_last(k) for k in kernels(model)}))

    strategy.plugins[:0] = [
        At("before_forward", lambda s: note("train", s.model, s.mb_x)),
        At("before_eval_forward", lambda s: note("eval", s.model, s.mb_x)),
        At(
            "before_phase_iteration",
            lambda s: note("phase", s.phase_running.module(), s.phase_running.batch[0]),
        ),
    ]
    return strategy


@pytest.mark.parametrize("name", METHODS)
def test_two_steps_give_the_same_weights_up_to_rounding(name):
    experiences, met = images().train_stream[:2], {}
    plain = train(build(name), experiences)
    last = train(watch(build(name, channels_last=True), met), experiences)
    last.eval(experiences[1])
    assert met == {
        where: {(True, True)} for where in ("train", "eval", *["phase"] * bool(METHODS[name]))
    }
    assert all(map(is_last, kernels(last.model)))
    assert all(map(is_last, kernels(FrozenTeacher.of(last).model)))
    assert not any(map(is_last, kernels(plain.model)))
    weights, expected = last.model.state_dict(), plain.model.state_dict()
    assert weights.keys() == expected.keys()
    for key in expected:
        torch.testing.assert_close(weights[key], expected[key], rtol=1e-3, atol=1e-4)
    assert last.exemplars().keys() == plain.exemplars().keys()


@pytest.mark.parametrize(("saved", "loaded"), [(True, False), (False, True), (True, True)])
def test_a_state_is_loaded_into_either_layout(saved, loaded):
    experiences, file = images().train_stream[:2], io.BytesIO()
    first = train(build("icarl", channels_last=saved), experiences[:1])
    torch.save(first.state_dict(), file)
    before = method_runs.weights(first)
    train(first, experiences[1:])
    file.seek(0)
    second = build("icarl", channels_last=loaded)
    second.load_state_dict(torch.load(file, weights_only=True))
    models = second.model, FrozenTeacher.of(second).model
    assert {is_last(kernel) for model in models for kernel in kernels(model)} == {loaded}
    assert differing(before, second.model.state_dict()) == []
    train(second, experiences[1:])
    changed = differing(first.model.state_dict(), second.model.state_dict())
    assert changed == [] if saved == loaded else changed


@pytest.mark.parametrize(
    ("model", "said"), [(vit, "TSAViT has 1 convolution"), (mlp, "Sequential has no convolution")]
)
def test_models_without_convolutions_behind_each_other_are_refused_by_name(model, said):
    with pytest.raises(ValueError, match=f"ICaRL: channels_last=True is for convol.*{said}"):
        method_runs.build("icarl", model=model(), channels_last=True)
