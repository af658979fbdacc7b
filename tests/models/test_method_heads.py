"""Heads of BiC and FOSTER, and the gradients with respect to stages that AFC needs."""

import copy

import pytest
import torch
from small_backbones import vit

from avalanche_hfc.models import (
    BoostedHead,
    CorrectedHead,
    GrowingLinear,
    ResNet32,
    TSAViT,
)


def grown(head, *class_ids):
    for part in head.modules():
        if isinstance(part, GrowingLinear):
            part.grow(class_ids)
    return head


def test_a_corrected_head_corrects_the_newest_columns_in_evaluation_only():
    torch.manual_seed(0)
    head, f = CorrectedHead(grown(GrowingLinear(3), 0, 1, 2, 3)), torch.randn(5, 3)
    head.bias.start([1, 3])
    head.bias.alpha.data.fill_(0.5)
    head.bias.beta.data.fill_(-2.0)
    plain = f @ head.linear.weight.T + head.linear.bias
    torch.testing.assert_close(head(f), plain)
    expected = plain.clone()
    expected[:, [1, 3]] = 0.5 * plain[:, [1, 3]] - 2
    torch.testing.assert_close(head.eval()(f), expected)


def test_boosting_starts_with_the_teachers_rows_for_its_extractor_and_fresh_rows_everywhere_else():
    torch.manual_seed(0)
    teacher = grown(BoostedHead(4), 2, 0)
    head = copy.deepcopy(teacher)
    grown(head, 3, 1)
    for part in (teacher.single, head.single, head.boosted):
        part.bias.data += 1  # trained
    before = copy.deepcopy(head)
    head.begin_boosting(teacher)
    old, new = [0, 2], [1, 3]
    assert head.boosted.weight[old, :4].equal(teacher.single.weight[old]) and head.boosted.bias[
        old
    ].equal(teacher.single.bias[old])
    for fresh, was in (
        (head.boosted.weight[old, 4:], before.boosted.weight[old, 4:]),
        (head.boosted.weight[new], before.boosted.weight[new]),
        (head.single.weight, before.single.weight),
    ):
        assert (fresh != was).all() and (fresh != 0).all()
    assert not head.single.bias.any() and not head.boosted.bias[new].any()
    f_old, f_new = torch.randn(5, 4), torch.randn(5, 4)
    z = head.boost(f_old, f_new)
    torch.testing.assert_close(
        z[:, old], teacher(f_old)[:, old] + f_new @ head.boosted.weight[old, 4:].T
    )
    torch.testing.assert_close(head(f_new), f_new @ head.single.weight.T + head.single.bias)


def test_rows_of_foster_s_heads_start_uniform_by_their_own_inputs_without_bias_also_when_boosting_begins():
    """kaiming_uniform_ for a linear layer, SimpleLinear of the authors: ±√(3/D) for `single`,
    ±√(3/2D) for `boosted`.
    """
    torch.manual_seed(0)
    head = grown(BoostedHead(64), *range(300))
    teacher = copy.deepcopy(head)
    grown(head, *range(300, 600))
    for moment in ("growth", "boosting"):
        for part, inputs in ((head.single, 64), (head.boosted, 128)):
            fresh, bound = part.weight[300:].flatten(), (3 / inputs) ** 0.5
            assert fresh.abs().max() <= bound and fresh.std().item() == pytest.approx(
                inputs**-0.5, rel=0.05
            ), moment
            assert not part.bias[300:].any()
        head.begin_boosting(teacher)


MODELS = {
    "vit": lambda: (vit(), torch.randn(3, 3, 8, 8)),
    "tsavit": lambda: (vit(TSAViT, msa_blocks=5), torch.randn(3, 3, 8, 8)),
    "resnet32": lambda: (ResNet32(), torch.randn(3, 3, 8, 8)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_gradients_of_stages_are_the_change_of_the_loss_when_a_stage_moves(name):
    torch.manual_seed(0)
    model, x = MODELS[name]()
    model.double().eval()
    x, weights = x.double(), torch.randn(model.embed_dim, dtype=torch.float64)
    gradients = model.stage_gradients(x, lambda embedding: (embedding @ weights).square().sum())
    stages = model.features(x).stages
    assert [g.shape for g in gradients] == [a.shape for a in stages]
    blocks = model.blocks if name == "resnet32" else model.backbone.blocks
    for stage, gradient in zip(stages, gradients, strict=True):
        push = torch.randn_like(stage)

        def moved(step, stage=stage, push=push):
            def hook(module, inputs, output):
                if name == "resnet32":
                    return (
                        output + step * push
                        if output.shape == stage.shape and torch.allclose(output, stage)
                        else output
                    )
                mean = output.mean(-1, keepdim=True)
                spread = (output.var(-1, unbiased=False, keepdim=True) + 1e-5).sqrt()
                own = ((output - mean) / spread)[:, 1:]
                if not torch.allclose(own.transpose(1, 2).unflatten(2, (2, 2)), stage):
                    return output
                own = own + step * push.flatten(2).transpose(
                    1, 2
                )  # the map moves, the mean and the spread of a token stay
                return torch.cat([output[:, :1], mean[:, 1:] + spread[:, 1:] * own], 1)

            handles = [block.register_forward_hook(hook) for block in blocks]
            with torch.no_grad():
                value = (model.embed(x) @ weights).square().sum()
            for handle in handles:
                handle.remove()
            return value

        slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
        torch.testing.assert_close((gradient * push).sum(), slope, rtol=1e-5, atol=1e-7)


def test_a_frozen_stage_has_gradient_zero():
    model = vit(frozen_blocks=2)
    gradients = model.stage_gradients(torch.randn(2, 3, 8, 8), lambda embedding: embedding.sum())
    assert [bool(g.any()) for g in gradients] == [False, False, True, True]  # blocks 1, 2, 4 and 5
