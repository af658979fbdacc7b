"""What a form of HFC minimises, which parameters move, what the constructor takes and refuses."""

import copy
import inspect

import pytest
import torch
import torch.nn.functional as F
from avalanche.training.templates import SupervisedTemplate
from strategy_runs import (
    At,
    benchmark_of,
    differing,
    herding_of,
    hfc,
    left_by,
    mlp,
    run,
    train,
    vit,
)
from torch import nn
from torch.optim import AdamW

from avalanche_hfc import HFCStrategy, TSAViT, official_parts
from avalanche_hfc.losses import (
    compensation_weights,
    forgetting_compensation,
    official_hfc,
    relation_distillation,
)
from avalanche_hfc.plugins import GFCPlugin, GRDPlugin, HerdingReplayPlugin
from avalanche_hfc.strategies.hfc import GRADIENT_WEIGHTS

STEPS = torch.tensor([1, 0, -1, -1, 0, 1])  # by column, in the second step
SMALL = dict(
    backbone="vit_tiny_patch16_224",
    image_size=8,
    patch_size=4,
    msa_blocks=3,
    frozen_blocks=1,
    adapter_dim=4,
    backbone_options=dict(embed_dim=32, num_heads=2, in_chans=1),
)


def by_hand(form, logits, targets, teacher):
    z = 2 / 4
    if form == "default":
        relation = relation_distillation(
            logits, targets, teacher, STEPS, normalise=True, average="present"
        )
        return (1 - z) * forgetting_compensation(logits, targets, STEPS) + z * relation
    if form == "paper":
        relation = relation_distillation(
            logits, targets, teacher, STEPS, normalise=False, average="seen"
        )
        return forgetting_compensation(logits, targets, STEPS) + relation
    if form == "0.3, 7":
        return 0.3 * forgetting_compensation(logits, targets, STEPS) + 7 * relation_distillation(
            logits, targets, teacher, STEPS
        )
    if form in GRADIENT_WEIGHTS:
        weights = compensation_weights(logits, targets, STEPS)
        losses = F.cross_entropy(logits, targets, reduction="none")
        if form == "compensation":
            losses, weights = weights * losses, torch.ones_like(weights)
        elif form == "neither":
            weights = torch.ones_like(weights)
        return (1 - z) * losses.mean() + z * relation_distillation(
            logits, targets, teacher, STEPS, weights=weights
        )
    return official_hfc(logits, targets, teacher, STEPS)


@pytest.mark.parametrize(
    "form", ["default", "paper", "official", "0.3, 7", "compensation", "relation", "neither"]
)
def test_the_loss_of_a_batch_in_the_second_step_is_the_forms(form):
    benchmark, met = benchmark_of(per_class=10), []

    def look(strategy):
        if strategy.clock.train_exp_counter == 1:
            teacher = copy.deepcopy(first).eval()(strategy.mb_x)
            met.append(
                (
                    strategy.loss.item(),
                    by_hand(form, strategy.mb_output, strategy.mb_y, teacher).item(),
                )
            )

    weights = {"form": form}
    if form == "0.3, 7":
        weights = {"compensation_weight": 0.3, "relation_weight": 7}
    elif form in GRADIENT_WEIGHTS:
        weights = {"gradient_weights": form}
    torch.manual_seed(0)
    strategy = hfc(mlp("growing", dropout=0.3), plugins=[At("after_backward", look)], **weights)
    strategy.train(benchmark.train_stream[0])
    first = copy.deepcopy(strategy.model)
    strategy.train(benchmark.train_stream[1])
    assert len(met) == 2 * 4
    for loss, expected in met:
        assert loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("form", ["default", "paper", "official"])
def test_the_loss_of_the_first_step_is_the_criterion_alone(form):
    met = []

    def look(strategy):
        plain = F.cross_entropy(strategy.mb_output, strategy.mb_y)
        binary = F.binary_cross_entropy_with_logits(
            strategy.mb_output[:, [1, 4]], F.one_hot(strategy.mb_y, 6)[:, [1, 4]].float()
        )
        met.append((strategy.loss.item(), (binary if form == "official" else plain).item()))

    run(
        form=form,
        experiences=benchmark_of().train_stream[:1],
        plugins=[At("after_backward", look)],
    )
    assert met and all(loss == pytest.approx(expected, rel=1e-5) for loss, expected in met)


def test_in_evaluation_the_official_form_speaks_with_the_criterion_given():
    met = []
    benchmark = benchmark_of()
    watch = At(
        "after_eval_iteration",
        lambda s: met.append(torch.equal(s.loss, F.cross_entropy(s.mb_output, s.mb_y))),
    )
    run(form="official", experiences=benchmark.train_stream[:2], plugins=[watch]).eval(
        benchmark.test_stream[:2]
    )
    assert met == [True, True]


def test_the_terms_add_up_to_the_total():
    strategy = run(experiences=benchmark_of().train_stream[:2])
    means = dict(strategy.losses.means)
    assert list(means) == ["total", "criterion", "compensation", "relation"]
    assert means.pop("total") == pytest.approx(sum(means.values()), rel=1e-5)


class Movement(At):
    """Names of the trainable parameters that stood still in an epoch, by (step, epoch)."""

    def __init__(self):
        self.still, self.moved = {}, {}
        super().__init__((), None)

    def before_training_epoch(self, strategy, **kwargs):
        self.before = {
            name: p.detach().clone()
            for name, p in strategy.model.named_parameters()
            if p.requires_grad
        }

    def after_training_epoch(self, strategy, **kwargs):
        epoch = (strategy.clock.train_exp_counter, strategy.clock.train_exp_epochs)
        now = dict(strategy.model.named_parameters())
        self.still[epoch] = {
            name for name, old in self.before.items() if torch.equal(old, now[name])
        }
        self.moved[epoch] = self.before.keys() - self.still[epoch]


@pytest.mark.parametrize("form", ["default", "paper", "official"])
@pytest.mark.parametrize("model", ["mlp", "vit", "official parts"])
def test_every_trainable_parameter_moves_in_every_epoch(model, form):
    movement = Movement()
    if model == "official parts":
        net, optimizer, plugins = official_parts(**SMALL)
    else:
        net = vit() if model == "vit" else mlp("growing")
        optimizer, plugins = AdamW(net.parameters(), lr=1e-3), []
    frozen = {name: p.clone() for name, p in net.named_parameters() if not p.requires_grad}
    stream = benchmark_of(per_class=8).train_stream[
        :2
    ]  # two batches: adapters whose second layer is 0 move after the first
    train(hfc(net, optimizer=optimizer, plugins=[*plugins, movement], form=form), stream)
    assert movement.still == {(step, epoch): set() for step in (0, 1) for epoch in (0, 1)}
    assert bool(frozen) == (model == "official parts")
    assert all(torch.equal(frozen[name], p) for name, p in net.named_parameters() if name in frozen)


def test_the_released_model_has_its_parameter_counts():
    """As in docs/architecture.md, on the meta device."""
    with torch.device("meta"):
        model, optimizer, _ = official_parts()
    assert isinstance(model, TSAViT) and isinstance(optimizer, AdamW)
    count = {name: p.numel() for name, p in model.named_parameters()}
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert (sum(count.values()), trainable, sum(count.values()) - trainable) == (
        86_887_616,
        50_705_600,
        36_182_016,
    )
    backbone, rest = optimizer.param_groups
    assert sum(p.numel() for p in rest["params"]) == 7_085_568 + 768
    assert sum(p.numel() for p in backbone["params"]) == 50_705_600 - 7_085_568 - 768
    assert (backbone["lr"], rest["lr"], backbone["weight_decay"], rest["weight_decay"]) == (
        6.25e-5,
        5 * 6.25e-5,
        1e-5,
        1e-5,
    )


def test_the_released_parts_start_as_the_released_code():
    model, _, plugins = official_parts(num_classes=7, **SMALL)
    assert not model.shared_embedding.any()
    assert model.head.out_features == 7 and model.head.seen.all() and model.head.weight.any(1).all()
    assert model.tsa[0].residual and [type(plugin).__name__ for plugin in plugins] == [
        "WarmUpCosinePlugin"
    ]
    assert official_parts(**SMALL)[0].head.out_features == 0
    with pytest.raises(ValueError, match="num_classes must be 1 or more, got 0"):
        official_parts(num_classes=0, **SMALL)


def test_a_head_grown_for_all_classes_still_masks_those_not_seen():
    outputs = []
    model, optimizer, plugins = official_parts(num_classes=6, **SMALL)
    watch = At("after_forward", lambda strategy: outputs.append(strategy.mb_output))
    hfc(model, optimizer=optimizer, plugins=[*plugins, watch], form="official").train(
        benchmark_of().train_stream[0]
    )
    assert all(
        (logits[:, [0, 2, 3, 5]] == -1000).all() and (logits[:, [1, 4]] > -1000).all()
        for logits in outputs
    )


def test_the_arguments_are_keyword_only_with_avalanches_names_order_and_defaults():
    ours = inspect.signature(HFCStrategy).parameters
    host = inspect.signature(SupervisedTemplate).parameters
    assert {p.kind for name, p in ours.items() if name != "base_kwargs"} == {
        inspect.Parameter.KEYWORD_ONLY
    }
    assert list(ours)[:3] == ["model", "optimizer", "criterion"]
    own = [
        "form",
        "mem_size",
        "per_class",
        "compensation_weight",
        "relation_weight",
        "normalise",
        "average",
        "prototypes",
        "gradient_weights",
        "optimizer_quirks",
        "drop_last",
    ]
    assert [name for name in ours if name not in (*own, "base_kwargs")] == [
        n for n in host if n in ours
    ]
    assert list(ours)[3:14] == own
    for name in ("train_mb_size", "train_epochs", "device", "plugins", "evaluator", "eval_every"):
        assert ours[name].default == host[name].default, name
    assert ours["eval_mb_size"].default is None  # like train_mb_size, docs/architecture.md


def test_a_misspelt_argument_is_a_type_error():
    with pytest.raises(TypeError, match="train_epoch"):
        hfc(mlp(), train_epoch=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"form": "papr"},
            "Unknown form 'papr'. Known: default, paper, official. Did you mean 'paper'?",
        ),
        ({"form": "xyz"}, "Unknown form 'xyz'. Known: default, paper, official."),
        ({"form": "official", "compensation_weight": 1.0}, "has its weights inside"),
        ({"form": "official", "relation_weight": "balanced"}, "has its weights inside"),
        (
            {"mem_size": 3, "per_class": 4},
            "Give mem_size or per_class, not both; got mem_size=3, per_class=4",
        ),
        ({"compensation_weight": 0}, "weight must be a number above 0 or 'balanced', got 0"),
        ({"relation_weight": float("nan")}, "got nan"),
        ({"mem_size": 0}, "1 or more, got 0"),
        ({"form": "official", "prototypes": False}, "leave out prototypes, got False"),
    ],
)
def test_a_wrong_argument_is_a_value_error_that_names_it(options, message):
    with pytest.raises(ValueError) as caught:
        hfc(mlp(), **options)
    assert message in str(caught.value)


def test_the_memory_is_2000_unless_said_otherwise():
    def memory(**options):
        model = mlp()
        return herding_of(
            HFCStrategy(model=model, optimizer=AdamW(model.parameters()), **options)
        ).memory

    assert (memory().total, memory().per_class, memory().rule) == (2000, None, "greedy")
    assert (memory(per_class=3).total, memory(per_class=3).per_class) == (None, 3)
    assert memory(form="official").rule == "icarl-code"


def test_a_fixed_head_too_narrow_for_a_later_class_is_refused_before_the_first_update():
    updates = []
    strategy = hfc(mlp("fixed", num_classes=5), plugins=[At("after_update", updates.append)])
    with pytest.raises(ValueError, match="class 5, the model gives 5 columns and cannot grow"):
        strategy.train(benchmark_of().train_stream[0])
    assert updates == []


def test_it_has_the_class_means_of_its_memory_if_the_model_embeds():
    stream = benchmark_of().train_stream[:2]
    strategy = run(vit, experiences=stream)
    means = strategy.class_means()
    assert sorted(means) == sorted(
        {class_id for experience in stream for class_id in experience.classes_in_this_experience}
    )
    for class_id, positions in strategy.exemplars().items():
        assert len(positions)
        images = torch.stack([image for image, *_ in herding_of(strategy).exemplars([class_id])[0]])
        with torch.no_grad():
            unit = F.normalize(strategy.model.eval().embed(images))
        torch.testing.assert_close(means[class_id], F.normalize(unit.mean(0), dim=0))
    assert run(experiences=stream).class_means() is None  # a plain Sequential does not embed


def test_it_is_avalanches_template_with_three_plugins_and_a_fresh_optimizer_in_each_step():
    def final(kind, *plugins, **options):
        torch.manual_seed(1)
        model = vit()
        strategy = kind(
            model=model,
            optimizer=AdamW(model.parameters(), lr=3e-3),
            plugins=list(plugins),
            train_mb_size=8,
            train_epochs=2,
            evaluator=None,
            **options,
        )
        return left_by(train(strategy, benchmark_of().train_stream))

    fresh = At("before_training_exp", lambda strategy: strategy.optimizer.state.clear())
    losses = GFCPlugin(weight="balanced"), GRDPlugin(weight="balanced")
    ours = final(HFCStrategy, mem_size=12)
    bare = final(
        SupervisedTemplate,
        *(fresh, HerdingReplayPlugin(mem_size=12), *losses),
        criterion=nn.CrossEntropyLoss(),
    )
    assert differing(ours, bare) == []
