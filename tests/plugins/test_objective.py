"""What a host minimises with GFC or GRD inside, worked out by hand from the loops of the
equations.
"""

import math
from types import SimpleNamespace

import loops
import pytest
import torch
import torch.nn.functional as F
from plugin_hosts import (
    DER_ALPHA,
    DER_BETA,
    HOSTS,
    MEMORY_ROWS,
    SIZES,
    STEPS,
    Watch,
    digits_benchmark,
    snapshot,
    train,
)

from avalanche_hfc.plugins import GFCPlugin, GRDPlugin, losses, steps

CLOSE = 2e-5  # relative: float32 against loops in float64


def look(strategy):
    """The batch as the host sees it, before anything was added to its loss."""
    seen = SimpleNamespace(
        x=strategy.mb_x,
        logits=strategy.mb_output.detach(),
        targets=strategy.mb_y,
        loss=strategy.loss.item(),
    )
    if hasattr(strategy, "batch_logits") and getattr(strategy, "replay_loader", None) is not None:
        seen.stored_logits = strategy.batch_logits
    if hasattr(strategy, "mb_buffer_y"):
        seen.memory = SimpleNamespace(
            x=strategy.mb_buffer_x,
            logits=strategy.mb_buffer_out.detach(),
            targets=strategy.mb_buffer_y,
        )
    return seen


def first_batch(name, step, monkeypatch, *plugins, **options):
    """The first batch of a step, total loss and teacher included. The plugins are neutral in the
    steps before: the same model as alone.
    """
    before = Watch("before_backward", look, step)
    after = Watch("after_backward", lambda strategy: strategy.loss.item(), step)
    models = Watch("after_training_exp", lambda strategy: snapshot(strategy.model))
    strategy = HOSTS[name]([before, *plugins, after, models], epochs=1, **options)
    benchmark = digits_benchmark()
    with monkeypatch.context() as patch:
        number = plugins[0].weight if plugins else 1
        if number != "balanced":
            patch.setattr(
                steps,
                "compensation_weights",
                lambda logits, targets, steps: torch.full((len(targets),), 1 / number),
            )
        patch.setattr(
            losses, "relation_distillation", lambda logits, *args, **kwargs: 0 * logits.sum()
        )
        train(strategy, benchmark.train_stream[:step])
    strategy.train(benchmark.train_stream[step])
    batch = before.seen[0]
    batch.total, batch.teacher, batch.strategy = after.seen[0], models.seen[step - 1], strategy
    return batch


def cross_entropies(logits, targets):
    return [
        -math.log(loops.softmax(row, range(len(row)))[y])
        for row, y in zip(logits, targets, strict=True)
    ]


def binary_cross_entropies(batch, step):
    """ICaRL: mean over the columns, to the teacher's sigmoids in the old ones."""
    known = batch.teacher.train_classifier(batch.teacher.feature_extractor(batch.x)).tolist()
    old = [c for c, s in enumerate(STEPS[step]) if 0 <= s < step]
    result = []
    for row, y, taught in zip(batch.logits.tolist(), batch.targets.tolist(), known, strict=True):
        labels = [loops.sigmoid(taught[c]) if c in old else float(c == y) for c in range(len(row))]
        columns = [bce(logit, label) for logit, label in zip(row, labels, strict=True)]
        result.append(sum(columns) / len(columns))
    return result


def bce(logit, label):
    """As torch: a logarithm is at least -100."""
    p = loops.sigmoid(logit)
    return -sum(
        share * max(math.log(q), -100) if q else -100 * share
        for share, q in ((label, p), (1 - label, loops.sigmoid(-logit)))
    )


def parts_of(name, batch, step):
    """(factor, logits, targets, per-sample losses) of each mean in the host's classification
    loss.
    """
    logits, targets = batch.logits.tolist(), batch.targets.tolist()
    if name == "icarl":
        return [(1.0, logits, targets, binary_cross_entropies(batch, step))]
    if name.startswith("der"):
        rows = [
            (1.0, logits[MEMORY_ROWS:], targets[MEMORY_ROWS:]),
            (DER_BETA, logits[:MEMORY_ROWS], targets[:MEMORY_ROWS]),
        ]
    elif name.startswith("er_ace"):
        own = [
            [value if c in targets else -math.inf for c, value in enumerate(row)] for row in logits
        ]
        rows = [
            (0.5, own, targets),
            (0.5, batch.memory.logits.tolist(), batch.memory.targets.tolist()),
        ]
    else:
        share = 1 - sum(SIZES[:step]) / sum(SIZES[: step + 1]) if "bic" in name else 1.0
        rows = [(share, logits, targets)]
    return [(factor, z, y, cross_entropies(z, y)) for factor, z, y in rows]


def excess(weight, name, batch, step):
    """What GFC must add: Σ factor · mean((weight · w - 1) · loss)."""
    total = 0.0
    for factor, logits, targets, values in parts_of(name, batch, step):
        w = loops.weights(logits, targets, STEPS[step])
        total += (
            factor
            * sum((weight * w_i - 1) * value for w_i, value in zip(w, values, strict=True))
            / len(targets)
        )
    return total


def relation(name, batch, step, normalise=True, average="present"):
    x, logits, targets = batch.x, batch.logits, batch.targets
    if name.startswith("er_ace"):
        x, logits, targets = (
            torch.cat([getattr(part, field) for part in (batch, batch.memory)])
            for field in ("x", "logits", "targets")
        )
    teacher = batch.teacher
    with torch.no_grad():
        taught = (
            teacher.train_classifier(teacher.feature_extractor(x))
            if name == "icarl"
            else teacher(x)
        )
    return loops.relation_distillation(
        logits.tolist(), targets.tolist(), taught.tolist(), STEPS[step], normalise, average
    )[0]


@pytest.mark.parametrize("name", HOSTS)
def test_the_terms_of_a_host_add_up_to_its_own_classification_loss(name):
    def difference(strategy):
        terms = gfc.host.terms()
        total = strategy.loss.item()
        if name.startswith("der") and strategy.replay_loader is not None:
            total -= (
                DER_ALPHA
                * F.mse_loss(strategy.mb_output[:MEMORY_ROWS], strategy.batch_logits).item()
            )
        step = strategy.clock.train_exp_counter
        if "bic" in name:
            total *= SIZES[step] / sum(SIZES[: step + 1])  # 1 - λ, which BiC multiplies in later
        return sum(term.scale * term.losses.mean().item() for term in terms) - total, len(terms)

    gfc = GFCPlugin()
    watch = Watch("before_backward", difference)
    train(HOSTS[name]([watch, gfc]), digits_benchmark().train_stream)
    assert max(abs(gap) for gap, _ in watch.seen) < 2e-6
    in_later_steps = 2 if name.startswith(("der", "er_ace")) else 1
    assert watch.seen[0][1] == 1 and watch.seen[-1][1] == in_later_steps


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("name", HOSTS)
def test_with_gfc_the_host_minimises_the_weighted_losses_in_the_place_of_its_own(
    name, step, monkeypatch
):
    alone = first_batch(name, step, monkeypatch)
    inside = first_batch(name, step, monkeypatch, GFCPlugin(weight=1.5))
    torch.testing.assert_close(inside.logits, alone.logits, rtol=0, atol=0)
    added = excess(1.5, name, alone, step)
    assert abs(added) > 1e-3
    assert inside.total == pytest.approx(alone.total + added, rel=CLOSE)


@pytest.mark.parametrize("name", ["naive", "replay", "cumulative", "ours"])
def test_a_cross_entropy_host_minimises_weight_times_l_fc(name, monkeypatch):
    batch = first_batch(name, 2, monkeypatch, GFCPlugin(weight=0.4))
    l_fc, _ = loops.forgetting_compensation(batch.logits.tolist(), batch.targets.tolist(), STEPS[2])
    assert batch.total == pytest.approx(0.4 * l_fc, rel=CLOSE)


@pytest.mark.parametrize("name", HOSTS)
def test_with_grd_the_host_also_minimises_weight_times_l_rd_to_the_model_of_the_step_before(
    name, monkeypatch
):
    alone = first_batch(name, 2, monkeypatch)
    inside = first_batch(name, 2, monkeypatch, GRDPlugin(weight=0.6))
    torch.testing.assert_close(inside.logits, alone.logits, rtol=0, atol=0)
    added = 0.6 * relation(name, alone, 2)
    assert added > 1e-3
    assert inside.total == pytest.approx(alone.total + added, rel=CLOSE)


@pytest.mark.parametrize(
    ("normalise", "average"), [(False, "seen"), (False, "present"), (True, "seen")]
)
def test_grd_passes_its_form_of_l_rd_on(normalise, average, monkeypatch):
    batch = first_batch("naive", 2, monkeypatch, GRDPlugin(normalise=normalise, average=average))
    assert batch.total - batch.loss == pytest.approx(
        relation("naive", batch, 2, normalise, average), rel=1e-4
    )


@pytest.mark.parametrize("bic_first", [True, False], ids=["behind-bic", "before-bic"])
@pytest.mark.parametrize("lamb", [-1, 0.7])
def test_in_bic_gfc_keeps_the_share_of_the_cross_entropy_and_grd_is_never_scaled(
    lamb, bic_first, monkeypatch
):
    host = {"name": "naive+bic", "step": 2, "monkeypatch": monkeypatch}
    alone = first_batch(**host, lamb=lamb)
    gfc, grd = (
        first_batch(host["name"], 2, monkeypatch, plugin, lamb=lamb, bic_first=bic_first)
        for plugin in (GFCPlugin(), GRDPlugin())
    )
    share = 0.3 if lamb == -1 else 1.0  # 3 new classes of 10
    assert gfc.total == pytest.approx(alone.total + share * excess(1, "naive", alone, 2), rel=CLOSE)
    assert grd.total == pytest.approx(alone.total + relation("naive", alone, 2), rel=CLOSE)


@pytest.mark.parametrize(("step", "old_fraction"), [(1, 4 / 7), (2, 7 / 10)])
def test_balanced_weights_are_one_minus_z_and_z(step, old_fraction, monkeypatch):
    gfc = first_batch("naive", step, monkeypatch, GFCPlugin(weight="balanced"))
    l_fc, _ = loops.forgetting_compensation(gfc.logits.tolist(), gfc.targets.tolist(), STEPS[step])
    assert gfc.total == pytest.approx((1 - old_fraction) * l_fc, rel=CLOSE)
    grd = first_batch("naive", step, monkeypatch, GRDPlugin(weight="balanced"))
    assert grd.total - grd.loss == pytest.approx(
        old_fraction * relation("naive", grd, step), rel=1e-4
    )


@pytest.mark.parametrize("name", ["der", "er_ace", "er_ace-shipped"])
def test_where_the_memory_is_smaller_than_its_batch_the_host_is_a_cross_entropy_host(
    name, monkeypatch
):
    small = {"mem_size": MEMORY_ROWS - 1}
    gfc = first_batch(name, 2, monkeypatch, GFCPlugin(weight=0.4), **small)
    l_fc, _ = loops.forgetting_compensation(gfc.logits.tolist(), gfc.targets.tolist(), STEPS[2])
    assert gfc.total == pytest.approx(0.4 * l_fc, rel=CLOSE)
    grd = first_batch(name, 2, monkeypatch, GRDPlugin(), **small)
    assert grd.total - grd.loss == pytest.approx(relation("naive", grd, 2), rel=1e-4)


def test_in_der_without_labels_of_the_memory_only_the_new_rows_are_weighted(monkeypatch):
    alone = first_batch("der", 2, monkeypatch, beta=0.0)
    inside = first_batch("der", 2, monkeypatch, GFCPlugin(weight=1.5), beta=0.0)
    _, logits, targets, values = parts_of("der", alone, 2)[0]
    w = loops.weights(logits, targets, STEPS[2])
    added = sum((1.5 * w_i - 1) * value for w_i, value in zip(w, values, strict=True)) / len(
        targets
    )
    assert inside.total == pytest.approx(alone.total + added, rel=CLOSE)
