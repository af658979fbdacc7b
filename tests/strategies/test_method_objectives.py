"""What each method minimises in a batch of its third step, against plain loops: its terms, their
factors, and where L_FC and L_RD go.
"""

import math

import loops
import method_loops as m
import pytest
import torch
from loops import sigmoid, softmax, split
from strategy_runs import SMALL_VIT, At, benchmark_of, train

from avalanche_hfc.lab.options import WITHOUT_MEMORY
from avalanche_hfc.models import DyToxModel, TSAViT, ViTEncoder
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.plugins.teacher import FrozenTeacher
from avalanche_hfc.strategies import STRATEGIES


class Seen:
    """A batch as the strategy saw it, as lists; `s` is the strategy at that moment."""

    def __init__(self, s):
        self.loss, self.terms = (
            s.loss.item(),
            {name: term.item() for name, term in s.loss_terms.items()},
        )
        self.steps = StepTable.of(s).on(s.mb_output).tolist()
        self.logits, self.y = s.mb_output.detach().tolist(), s.mb_y.tolist()
        teacher = FrozenTeacher.of(s).model
        with torch.no_grad():
            self.teacher = None if teacher is None else teacher(s.mb_x).tolist()
            if teacher is not None and hasattr(s.model, "features"):
                own, other = s.model.features(s.mb_x), teacher.features(s.mb_x)
                self.f, self.f0 = own.embedding.tolist(), other.embedding.tolist()
                self.maps, self.maps0 = (
                    [a.tolist() for a in own.stages],
                    [a.tolist() for a in other.stages],
                )
        self.seen, self.old, self.new = split(self.steps)
        self.rho = len(self.old) / len(self.seen)

    def rows(self):
        return zip(self.logits, self.y, strict=True)

    def mean(self, losses, w=None):
        return sum(a * b for a, b in zip(losses, w or [1.0] * len(losses), strict=True)) / len(
            losses
        )

    def cross_entropies(self):
        return [m.cross_entropy(row, y, self.seen) for row, y in self.rows()]

    def softmax_gradients(self):
        return [
            sum(p for c, p in softmax(row, self.seen).items() if c != y) for row, y in self.rows()
        ]

    def weights(self, gradients):
        return m.weights_of(gradients, self.y, self.steps)

    def relation(self, w):
        return loops.relation_distillation(
            self.logits, self.y, self.teacher, self.steps, True, "present", w
        )[0]


def model_for(name):
    small = dict(SMALL_VIT)
    return (
        DyToxModel(ViTEncoder("vit_tiny_patch16_224", **small))
        if name == "dytox"
        else TSAViT("vit_tiny_patch16_224", **small)
    )


def batch_of(name, *, steps=3, look=lambda s: None, plugins=(), **options):
    """(batch, what `look` saw): the first batch but one of the last of `steps` steps that has old
    and new samples.
    """
    met = []

    def keep(s):
        seen_steps = {StepTable.of(s).step_of[y] for y in s.mb_y.tolist()}
        moved = (
            StepTable.of(s).current == steps - 1 and s.clock.train_exp_iterations > 0
        )  # the first batch has student = teacher
        if moved and not met and (steps == 1 or len(seen_steps) > 1 or name == "finetune"):
            met.append((Seen(s), look(s)))

    torch.manual_seed(4)
    model = model_for(name)
    memory = {} if name in WITHOUT_MEMORY else {"mem_size": 12}
    short = {"tune_epochs": 1} if name in ("podnet", "podnet-cscct", "afc", "dytox") else {}
    strategy = STRATEGIES[name](
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
        train_epochs=2,
        eval_mb_size=64,
        plugins=[*plugins, At("before_backward", keep)],
        evaluator=None,
        **{"train_mb_size": 12, **memory, **short, **options},
    )
    train(strategy, benchmark_of().train_stream[:steps])
    return met[0]


def check(batch, **terms):
    """The terms are these, and the loss is their sum."""
    assert batch.terms.keys() == terms.keys()
    for name, expected in terms.items():
        assert batch.terms[name] == pytest.approx(expected, rel=2e-4, abs=2e-6), name
    assert batch.loss == pytest.approx(sum(terms.values()), rel=2e-4, abs=2e-6)
    assert all(abs(value) > 1e-7 for value in terms.values()), "a term of 0 would prove nothing"


@pytest.mark.parametrize("name", ["finetune", "herding-replay"])
def test_plain_cross_entropy_hosts(name):
    b, _ = batch_of(name)
    check(b, classification=b.mean(b.cross_entropies()))
    b, _ = batch_of(name, losses="gfc")
    check(b, classification=b.mean(b.cross_entropies(), b.weights(b.softmax_gradients())))
    b, _ = batch_of(name, losses="hfc")
    w = b.weights(b.softmax_gradients())
    check(b, classification=b.mean(b.cross_entropies(), w), relation=b.relation(w))


def test_joint_training_knows_no_old_class():
    b, _ = batch_of("joint")
    check(b, classification=b.mean(b.cross_entropies()))


def test_baseline_balances_by_the_share_of_old_classes():
    b, _ = batch_of("baseline")
    distillation = m.divergence_per_column(b.logits, b.teacher, b.steps, 1)
    check(
        b,
        classification=(1 - b.rho) * b.mean(b.cross_entropies()),
        distillation=b.rho * distillation,
    )
    b, _ = batch_of("baseline", losses="grd")
    w = b.weights(b.softmax_gradients())
    check(
        b, classification=(1 - b.rho) * b.mean(b.cross_entropies()), relation=b.rho * b.relation(w)
    )


def icarl_losses(b, labels):
    return [m.binary_cross_entropy(row, q, b.seen) for row, q in zip(b.logits, labels, strict=True)]


def one_hot(b):
    return [[float(c == y) for c in range(len(b.steps))] for y in b.y]


def sigmoid_weights(b):
    return b.weights([sigmoid(-row[y]) for row, y in b.rows()])


def sigmoid_relation(b, w):
    return m.sigmoid_relation_distillation(b.logits, b.y, b.teacher, b.steps, "present", w)


def test_icarl_takes_the_teachers_sigmoids_for_old_columns():
    b, _ = batch_of("icarl")
    mixed = icarl_losses(b, m.mixed_targets(b.y, b.teacher, b.steps))
    check(b, classification=b.mean(mixed))
    b, _ = batch_of("icarl", losses="gfc")
    mixed = icarl_losses(b, m.mixed_targets(b.y, b.teacher, b.steps))
    check(b, classification=b.mean(mixed, sigmoid_weights(b)))


def test_icarl_with_both_losses_splits_labels_and_teacher():
    b, _ = batch_of("icarl", losses="hfc")
    w = sigmoid_weights(b)
    check(b, classification=b.mean(icarl_losses(b, one_hot(b)), w), relation=sigmoid_relation(b, w))
    b, _ = batch_of("icarl", losses="hfc", gradient="softmax")
    w = b.weights(b.softmax_gradients())
    check(b, classification=b.mean(icarl_losses(b, one_hot(b)), w), relation=sigmoid_relation(b, w))


def test_icarl_divides_every_term_by_all_classes_of_the_benchmark_if_asked():
    for losses, labels in (
        ("host", lambda b: m.mixed_targets(b.y, b.teacher, b.steps)),
        ("hfc", one_hot),
    ):
        b, _ = batch_of("icarl", losses=losses, divisor="all", steps=2)
        w = sigmoid_weights(b) if losses == "hfc" else None
        assert len(b.seen) == 4
        relation = {"relation": sigmoid_relation(b, w) * 4 / 6} if w else {}
        check(b, classification=b.mean(icarl_losses(b, labels(b)), w) * 4 / 6, **relation)


@pytest.mark.parametrize("losses", ["host", "gfc", "grd", "hfc"])
@pytest.mark.parametrize("steps", [1, 2])
def test_with_the_divisor_all_every_term_of_icarl_is_the_share_of_classes_seen_of_the_term_with_seen(
    losses, steps
):
    def both(s):
        found = []
        for s.divisor in ("seen", "all"):
            terms = s.objective(s.mb_output, s.mb_y, StepTable.of(s).on(s.mb_output))
            found.append({name: term.item() for name, term in terms.items()})
        return found

    _, (seen, all_classes) = batch_of(
        "icarl", losses=losses, divisor="all", steps=steps, look=both, train_mb_size=8
    )
    assert all_classes == pytest.approx(
        {name: 2 * steps / 6 * term for name, term in seen.items()}, rel=1e-6
    )
    assert seen.keys() == {"classification"} | (
        {"relation"} if losses in ("grd", "hfc") and steps > 1 else set()
    )
    assert all(abs(term) > 1e-7 for term in seen.values())


@pytest.mark.parametrize("losses", ["host", "hfc"])
def test_icarl_trains_the_columns_of_classes_to_come_towards_0_and_evaluation_does_not_see_them(
    losses,
):
    def all_columns(s):
        raw = s.model(s.mb_x).tolist()  # in training mode
        s.model.eval()
        hidden = s.model(s.mb_x).tolist()
        s.model.train()
        return raw, hidden

    b, (raw, hidden) = batch_of(
        "icarl", losses=losses, divisor="all", columns="all", steps=2, look=all_columns
    )
    labels = one_hot(b) if losses == "hfc" else m.mixed_targets(b.y, b.teacher, b.steps)
    w = sigmoid_weights(b) if losses == "hfc" else None
    to_come = [c for c in range(6) if c not in b.seen]
    later = [sum(math.log1p(math.exp(row[c])) for c in to_come) / 6 for row in raw]
    of_seen = [4 / 6 * loss for loss in icarl_losses(b, labels)]
    sums = [a + c for a, c in zip(of_seen, later, strict=True)]
    relation = {"relation": sigmoid_relation(b, w) * 4 / 6} if w else {}
    check(b, classification=b.mean(sums, w), **relation)
    assert b.mean(later) > 0.01
    assert {row[c] for row in hidden for c in to_come} == {-1000.0}


def test_icarl_with_softmax_outputs_is_cross_entropy_and_distillation_at_temperature_2():
    b, _ = batch_of("icarl", outputs="softmax")
    check(
        b,
        classification=b.mean(b.cross_entropies()),
        distillation=m.knowledge_distillation(b.logits, b.teacher, b.steps, 2),
    )
    b, _ = batch_of("icarl", outputs="softmax", losses="hfc")
    w = b.weights(b.softmax_gradients())
    check(b, classification=b.mean(b.cross_entropies(), w), relation=b.relation(w))


def test_bic_distils_from_the_corrected_teacher():
    def look(s):
        bias = FrozenTeacher.of(s).model.head.bias
        plain = (
            FrozenTeacher.of(s).model.head.linear(FrozenTeacher.of(s).model.embed(s.mb_x)).tolist()
        )
        return bias.alpha.item(), bias.beta.item(), bias.class_ids.tolist(), plain

    b, (alpha, beta, newest, plain) = batch_of("bic", look=look)
    assert alpha != 1 and beta != 0 and [b.steps[c] for c in newest] == [1, 1]
    corrected = [
        [alpha * v + beta if c in newest else v for c, v in enumerate(row)] for row in plain
    ]
    distillation = m.knowledge_distillation(b.logits, corrected, b.steps, 2)
    check(
        b,
        classification=(1 - b.rho) * b.mean(b.cross_entropies()),
        distillation=b.rho * distillation,
    )
    b, (alpha, beta, newest, plain) = batch_of("bic", look=look, losses="hfc")
    b.teacher = [
        [alpha * v + beta if c in newest else v for c, v in enumerate(row)] for row in plain
    ]
    w = b.weights(b.softmax_gradients())
    check(
        b,
        classification=(1 - b.rho) * b.mean(b.cross_entropies(), w),
        relation=b.rho * b.relation(w),
    )


def nca_losses(b, form, scale):
    return [m.nca(row, y, b.seen, form, 0.6, scale) for row, y in b.rows()]


def pod_terms(b, spatial=3, flat=1):
    s = math.sqrt(len(b.seen) / len(b.new))
    cosines = [m.cosine(f, g) for f, g in zip(b.f, b.f0, strict=True)]
    return {
        "pod_spatial": s * spatial * m.pod_spatial(b.maps, b.maps0),
        "pod_flat": s * flat * sum(1 - c for c in cosines) / len(cosines),
    }


def scale_of(s):
    return s.model.head.scale.item()


@pytest.mark.parametrize("form", ["code", "paper"])
def test_podnet(form):
    b, scale = batch_of("podnet", look=scale_of, nca=form)
    check(b, classification=b.mean(nca_losses(b, form, scale)), **pod_terms(b))
    b, scale = batch_of(
        "podnet", look=scale_of, nca=form, spatial_weight=2, flat_weight=0.5, losses="hfc"
    )
    w = b.weights(b.softmax_gradients())
    check(
        b,
        classification=b.mean(nca_losses(b, form, scale), w),
        relation=b.relation(w),
        **pod_terms(b, 2, 0.5),
    )


@pytest.mark.parametrize("form", ["code", "paper"])
def test_podnet_weighs_by_the_true_derivative_of_its_loss_if_asked(form):
    model = model_for("podnet")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    s = STRATEGIES["podnet"](
        model=model, optimizer=optimizer, evaluator=None, losses="gfc", gradient="nca", nca=form
    )
    logits = torch.tensor(
        [[2.0, 1.0, 0.5, -1.0], [0.0, 1.0, 3.0, 0.0], [5.0, 0.0, 0.0, 0.0], [1.0, 2.0, 0.0, 1.5]],
        requires_grad=True,
    )
    targets, steps = torch.tensor([2, 2, 0, 3]), torch.tensor([0, 0, 1, 1])
    s.classification(logits, targets, steps).sum().backward()
    true = -logits.grad.gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(s.own_gradient(logits, targets, steps), true)
    assert len(set(true.tolist())) > 1 and s.own_gradient(logits, targets, steps)[0] == 1


def shake(s):
    """Another teacher: CT between two models that are almost the same is lost in rounding."""
    if (teacher := FrozenTeacher.of(s).model) is not None:
        for parameter in teacher.parameters():
            parameter += torch.randn(parameter.shape) / 4


@pytest.mark.parametrize("reduction", ["elements", "rows"])
def test_podnet_cscct_adds_clustering_and_transfer(reduction):
    plugins = [At("before_training_exp", shake)]
    b, scale = batch_of("podnet-cscct", look=scale_of, reduction=reduction, plugins=plugins)
    transfer = m.controlled_transfer(b.f, b.f0, b.y, b.steps, 2, reduction)
    added = {"clustering": 3 * m.cross_space_clustering(b.f, b.f0, b.y), "transfer": 1.5 * transfer}
    check(b, classification=b.mean(nca_losses(b, "code", scale)), **pod_terms(b), **added)


def test_afc_weighs_maps_by_the_importance_of_the_step_before():
    def look(s):
        return scale_of(s), [i.tolist() for i in s.importance]

    b, (scale, importance) = batch_of("afc", look=look)
    assert all(sum(i) / len(i) == pytest.approx(1, rel=1e-5) and max(i) > 1.1 for i in importance)
    s = math.sqrt(len(b.seen) / len(b.new))
    term = 4 * s * m.importance_distillation(b.maps, b.maps0, importance)
    check(b, classification=b.mean(nca_losses(b, "code", scale)), importance=term)
    b, (scale, importance) = batch_of("afc", look=look, losses="hfc", importance_weight=1.0)
    w = b.weights(b.softmax_gradients())
    term = s * m.importance_distillation(b.maps, b.maps0, importance)
    check(
        b,
        classification=b.mean(nca_losses(b, "code", scale), w),
        relation=b.relation(w),
        importance=term,
    )


def test_ssil_lets_no_softmax_cross_the_blocks():
    b, _ = batch_of("ssil")
    losses = m.separated_cross_entropy(b.logits, b.y, b.steps)
    check(
        b,
        classification=b.mean(losses),
        distillation=m.separated_distillation(b.logits, b.teacher, b.steps, 2),
    )
    b, _ = batch_of("ssil", losses="hfc")
    w = b.weights(m.separated_gradient(b.logits, b.y, b.steps))
    relation = m.separated_relation_distillation(b.logits, b.y, b.teacher, b.steps, "present", w)
    check(
        b,
        classification=b.mean(m.separated_cross_entropy(b.logits, b.y, b.steps), w),
        relation=relation,
    )


def test_foster_boosts_with_divided_logits_and_an_auxiliary_head():
    def look(s):
        old, new = FrozenTeacher.of(s).model.embed(s.mb_x), s.model.embed(s.mb_x)
        counts = torch.bincount(torch.tensor(list(s.adapted_dataset.targets)), minlength=6).tolist()
        boosted = (
            torch.cat([old, new], 1) @ s.model.head.boosted.weight.T + s.model.head.boosted.bias
        )
        auxiliary = (new @ s.model.head.single.weight.T + s.model.head.single.bias).tolist()
        return counts, boosted.tolist(), auxiliary

    for losses in ("host", "hfc"):
        b, (counts, boosted, auxiliary) = batch_of("foster", look=look, losses=losses, beta=0.7)
        assert torch.allclose(
            torch.tensor(boosted)[:, b.seen], torch.tensor(b.logits)[:, b.seen], atol=1e-5
        )
        assert (
            counts[b.new[0]] == 6 and counts[b.old[0]] == 3
        )  # six new images, 12 exemplars of four classes
        weights = m.class_weights(counts, b.steps, 0.7)
        divided = [[v / weights[c] for c, v in enumerate(row)] for row in b.logits]
        classification = [
            m.cross_entropy(row, y, b.seen) for row, y in zip(divided, b.y, strict=True)
        ]
        added = sum(
            m.cross_entropy(row, y, b.seen) for row, y in zip(auxiliary, b.y, strict=True)
        ) / len(b.y)
        if losses == "host":
            distillation = m.knowledge_distillation(b.logits, b.teacher, b.steps, 2)
            check(
                b, classification=b.mean(classification), distillation=distillation, auxiliary=added
            )
        else:
            gradients = [
                sum(p for c, p in softmax(row, b.seen).items() if c != y)
                for row, y in zip(divided, b.y, strict=True)
            ]
            w = b.weights(gradients)
            check(
                b,
                classification=b.mean(classification, w),
                relation=b.relation(w),
                auxiliary=added,
            )


def test_dytox_balances_sigmoid_losses_and_adds_the_divergence_head():
    def look(s):
        return s.model.divergence(s.model.embed(s.mb_x)).tolist()

    def divergence(b, outputs):
        labels = [0 if y in b.old else 1 + sorted(b.new).index(y) for y in b.y]
        rows = zip(outputs, labels, strict=True)
        losses = [
            m.binary_cross_entropy(row, [float(k == label) for k in range(3)], range(3))
            for row, label in rows
        ]
        return 0.1 * sum(losses) / len(losses)

    b, outputs = batch_of("dytox", look=look)
    check(
        b,
        classification=(1 - b.rho) * b.mean(icarl_losses(b, one_hot(b))),
        distillation=b.rho * m.divergence_per_column(b.logits, b.teacher, b.steps, 1),
        divergence=divergence(b, outputs),
    )
    b, outputs = batch_of("dytox", look=look, losses="hfc")
    w = sigmoid_weights(b)
    check(
        b,
        classification=(1 - b.rho) * b.mean(icarl_losses(b, one_hot(b)), w),
        relation=b.rho * sigmoid_relation(b, w),
        divergence=divergence(b, outputs),
    )
