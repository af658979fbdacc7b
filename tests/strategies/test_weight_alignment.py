"""WA: the lengths of the head's rows after a step, what alignment changes and what it leaves."""

import pytest
import torch
from method_runs import build
from strategy_runs import At, benchmark_of, test_images, train

from avalanche_hfc.models import DyToxModel, ViTEncoder
from avalanche_hfc.strategies.wa import alignment_factor

NEW, OLD = [2, 3], [0, 1, 4, 5]


def aligned(**options):
    """The head before and after the alignment of the last of three steps, and the strategy."""
    before = {}

    def look(strategy):
        before.update(
            {name: value.clone() for name, value in strategy.model.head.state_dict().items()}
        )

    strategy = build("wa", plugins=[At("after_training_epoch", look)], **options)
    train(strategy, benchmark_of().train_stream)
    return before, strategy.model.head.state_dict(), strategy


@pytest.mark.parametrize("losses", ["host", "hfc"])
def test_new_rows_end_with_the_mean_length_of_old_ones_and_nothing_else_changes(losses):
    before, after, _ = aligned(losses=losses)
    lengths = [row.norm().item() for row in after["weight"]]
    mean = sum(lengths[k] for k in OLD) / 4
    assert sum(lengths[k] for k in NEW) / 2 == pytest.approx(mean, rel=1e-5)
    assert torch.equal(after["weight"][OLD], before["weight"][OLD])
    assert torch.equal(after["bias"], before["bias"])
    factor = mean / (sum(before["weight"][k].norm().item() for k in NEW) / 2)
    torch.testing.assert_close(after["weight"][NEW], factor * before["weight"][NEW])
    assert factor != pytest.approx(1, rel=1e-3)


def test_the_order_of_old_classes_is_as_before_for_every_image():
    before, _, strategy = aligned()
    images, _ = test_images(benchmark_of())
    with torch.no_grad():
        now = strategy.model.eval()(images)[:, OLD]
        strategy.model.head.load_state_dict(before)
        assert torch.equal(now.argsort(1), strategy.model(images)[:, OLD].argsort(1))


def test_the_first_step_is_not_aligned_and_the_teacher_is_the_aligned_model():
    strategy, seen = build("wa"), []
    strategy.plugins.append(
        At("after_training_epoch", lambda s: seen.append(s.model.head.weight.detach().clone()))
    )
    benchmark = benchmark_of()
    train(strategy, benchmark.train_stream[:1])
    assert torch.equal(strategy.model.head.weight, seen[-1])
    train(strategy, benchmark.train_stream[1:2])
    assert not torch.equal(strategy.model.head.weight, seen[-1])
    assert torch.equal(strategy.model.head.weight, strategy.frozen_teacher.model.head.weight)


def test_the_factor_ignores_classes_not_seen_and_the_scale_of_all_weights():
    weight = torch.tensor([[3.0, 4.0], [9.0, 9.0], [0.0, 2.0], [6.0, 8.0], [0.0, 0.0]])
    steps = torch.tensor([0, -1, 2, 1, 2])
    assert alignment_factor(weight, steps).item() == pytest.approx(7.5 / 1)
    assert alignment_factor(5 * weight, steps).item() == pytest.approx(7.5)
    weight[2] = 0
    assert alignment_factor(weight, steps).isfinite()


@pytest.mark.parametrize("clip", [False, True])
def test_clipped_weights_are_never_below_zero_after_an_update(clip):
    lowest = []
    look = At("after_update", lambda s: lowest.append(s.model.head.weight.min().item()))
    train(build("wa", clip_weights=clip, plugins=[look]), benchmark_of().train_stream[:2])
    assert (min(lowest) >= 0) == clip


def test_a_head_without_rows_of_weights_is_refused():
    small = dict(image_size=8, patch_size=4, msa_blocks=1)
    small |= dict(backbone_options=dict(embed_dim=32, num_heads=2, in_chans=1))
    model = DyToxModel(ViTEncoder("vit_tiny_patch16_224", **small))
    with pytest.raises(ValueError, match="WA needs a model whose head is a GrowingLinear"):
        build("wa", model=model)
