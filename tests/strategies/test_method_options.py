"""What a method is given that it cannot use: said at construction, with the value and what is
allowed.
"""

import copy

import pytest
import torch
from avalanche.models import SimpleMLP
from strategy_runs import SMALL_VIT, benchmark_of, mlp, train

from avalanche_hfc.lab.options import ONE_PASS
from avalanche_hfc.models import (
    BoostedHead,
    CorrectedHead,
    CosineHead,
    DyToxModel,
    GrowingLinear,
    TSAViT,
    ViTEncoder,
)
from avalanche_hfc.plugins import GFCPlugin, GRDPlugin, HerdingReplayPlugin
from avalanche_hfc.strategies import STRATEGIES
from avalanche_hfc.strategies._base.heads import exchange_parameters

OURS = [name for name in STRATEGIES if not name.startswith("avalanche-")]
HOSTS = [name for name in OURS if name not in ("hfc", "joint", *ONE_PASS)]


def vit():
    return TSAViT("vit_tiny_patch16_224", **SMALL_VIT)


def build(name, model=None, **options):
    if model is None:
        model = (
            DyToxModel(ViTEncoder("vit_tiny_patch16_224", **SMALL_VIT))
            if name == "dytox"
            else vit()
        )
    return STRATEGIES[name](
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        evaluator=None,
        **options,
    )


@pytest.mark.parametrize("name", ["podnet", "podnet-cscct", "afc", "foster", "bic"])
def test_a_model_without_what_the_method_needs_is_refused_with_what_is_missing(name):
    stages = (
        "" if name in ("foster", "bic") else r", features \(its `stages` are the maps to distil\)"
    )
    with pytest.raises(ValueError, match=f"SimpleMLP lacks embed, classify{stages}"):
        build(name, SimpleMLP())
    with pytest.raises(ValueError, match="head of TaskTokens"):
        build(
            name,
            DyToxModel(ViTEncoder("vit_tiny_patch16_224", **SMALL_VIT))
            if name in ("bic", "foster")
            else WithStages(),
        )
    used = vit()
    used.head.grow([0, 1, 2])
    with pytest.raises(ValueError, match="has learned 3 classes"):
        build(name, used)


class WithStages(DyToxModel):
    def __init__(self):
        super().__init__(ViTEncoder("vit_tiny_patch16_224", **SMALL_VIT))

    def stage_gradients(self, x, loss):
        raise AssertionError


def test_dytox_needs_tokens_of_each_step():
    with pytest.raises(ValueError, match="a DyToxModel, got a TSAViT"):
        build("dytox", vit())


STARTS = {
    "icarl": "normal",
    "bic": "uniform",
    "ssil": "linear",
    "foster": "uniform",
    "wa": "uniform",
}  # iCaRL's code, ports of BiC, SS-IL's, FOSTER's, PyCIL's WA


@pytest.mark.parametrize(
    "name",
    [name for name in OURS if name not in ("podnet", "podnet-cscct", "afc", "dytox", *ONE_PASS)],
)
def test_new_rows_start_as_the_method_s_authors_have_them_in_the_model_and_its_copies(name):
    torch.manual_seed(0)
    strategy = build(name)
    copied = copy.deepcopy(strategy.model).train()
    for step, class_ids in enumerate((range(100), range(100, 200))):
        for part in (part for part in copied.head.modules() if isinstance(part, GrowingLinear)):
            part.grow(class_ids)
            weight, bias = part.weight[class_ids[0] :].detach(), part.bias[class_ids[0] :].detach()
            start, spread = STARTS.get(name, "hfc"), part.in_features**-0.5
            like_linear = start == "linear" or (start == "hfc" and step == 0)
            normal = start == "normal" or (start == "hfc" and step == 1)
            assert weight.std().item() == pytest.approx(
                spread / 3**0.5 if like_linear else spread, rel=0.05
            )
            assert (
                weight.abs().max() > 2 * spread
            ) == normal  # the others end at √3 of it, or before
            assert bool(bias.any()) == (start in ("hfc", "linear")) and bias.abs().max() <= spread


@pytest.mark.parametrize(
    ("name", "kind"),
    [("bic", CorrectedHead), ("podnet", CosineHead), ("afc", CosineHead), ("foster", BoostedHead)],
)
def test_a_method_puts_its_head_into_the_model_and_the_optimizers_group_of_the_old_one(name, kind):
    model = vit().double()
    body = [p for n, p in model.named_parameters() if not n.startswith("head.")]
    optimizer = torch.optim.SGD(
        [{"params": body, "lr": 0.1}, {"params": model.head.parameters(), "lr": 0.7}], lr=0.1
    )
    STRATEGIES[name](model=model, optimizer=optimizer, evaluator=None)
    assert type(model.head) is kind
    first, second = optimizer.param_groups
    assert {id(p) for p in second["params"]} == {id(p) for p in model.head.parameters()} and second[
        "lr"
    ] == 0.7
    assert {id(p) for p in first["params"]} == {id(p) for p in body}
    assert all(p.dtype == torch.float64 for p in model.parameters())


def test_parameters_that_both_heads_have_keep_their_place():
    kept, gone, new, other = (torch.nn.Parameter(torch.zeros(1)) for _ in range(4))
    optimizer = torch.optim.SGD([{"params": [kept, gone]}, {"params": [other]}], lr=0.1)
    exchange_parameters(optimizer, [kept, gone], [kept, new])
    assert [[id(p) for p in group["params"]] for group in optimizer.param_groups] == [
        [id(kept), id(new)],
        [id(other)],
    ]


def test_a_head_of_the_right_kind_is_taken_as_it_is():
    model = vit()
    model.head = head = CosineHead(model.embed_dim, num_proxies=3)
    build("podnet", model)
    assert model.head is head


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(losses="hcf"), "'hcf'.*Did you mean 'hfc'"),
        (dict(gradient="sofmax", losses="hfc"), "'sofmax'.*Did you mean 'softmax'"),
        (dict(gradient="softmax"), "gradient='softmax' has no effect with losses='host'"),
        (dict(criterion=torch.nn.CrossEntropyLoss(label_smoothing=0.1)), "label_smoothing=0.1"),
        (dict(plugins=[GFCPlugin()]), "takes no GFCPlugin.*losses='gfc', 'grd' or 'hfc'"),
        (dict(plugins=[GRDPlugin()]), "takes no GRDPlugin"),
    ],
    ids=["losses", "gradient", "gradient-alone", "criterion", "gfc", "grd"],
)
def test_every_method_refuses_unknown_losses_and_gradients_other_criteria_and_loss_plugins(
    name, options, message
):
    with pytest.raises(ValueError, match=message):
        build(name, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("icarl", dict(divisor="al"), "Did you mean 'all'"),
        ("icarl", dict(outputs="sigmod"), "Did you mean 'sigmoid'"),
        ("icarl", dict(divisor="all", outputs="softmax"), "divisor='all' acts only with"),
        ("icarl", dict(columns="all"), "columns='all' acts only with divisor='all'"),
        ("icarl", dict(inference="nearest"), "'nearest'"),
        ("podnet", dict(nca="papr"), "Did you mean 'paper'"),
        (
            "podnet",
            dict(spatial_weight=-1.0),
            "spatial_weight must be a number of 0 or more, got -1.0",
        ),
        (
            "podnet",
            dict(flat_weight=float("nan")),
            "flat_weight must be a number of 0 or more, got nan",
        ),
        ("podnet", dict(tune_epochs=0), "tune_epochs must be a whole number of 1 or more, got 0"),
        ("podnet", dict(tune_lr=0), "tune_lr must be a number above 0, got 0"),
        ("podnet", dict(scale_lr=0.0), "scale_lr must be a number above 0, got 0.0"),
        ("afc", dict(scale_lr=float("inf")), "scale_lr must be a number above 0, got inf"),
        ("podnet-cscct", dict(reduction="row"), "Did you mean 'rows'"),
        ("afc", dict(importance_weight=float("inf")), "importance_weight"),
        ("ssil", dict(replay_mb_size=0), "replay_mb_size"),
        ("foster", dict(beta=1.0), "beta must be in .*got 1.0"),
        ("foster", dict(compress_beta=-0.1), "compress_beta must be in"),
        (
            "foster",
            dict(beta=(0.9, 1.0)),
            r"beta must be in \[0, 1\), a number or one for each step from the second on, got \(0.9, 1.0\)",
        ),
        ("foster", dict(compress_beta=[]), r"compress_beta must be in .*got \[\]"),
        ("foster", dict(beta=[0.9, True]), r"beta must be in .*got \[0.9, True\]"),
        ("foster", dict(compress_epochs=0), "compress_epochs"),
        ("bic", dict(bias_rounds=0), "bias_rounds"),
        ("bic", dict(bias_lr=0.0), "bias_lr must be above 0"),
        ("dytox", dict(divergence_weight=True), "divergence_weight"),
        ("herding-replay", dict(rule="greddy"), "Did you mean 'greedy'"),
        ("herding-replay", dict(mem_size=5, per_class=2), "not both"),
    ],
    ids=str,
)
def test_a_bad_option_is_named_with_what_is_allowed(name, options, message):
    with pytest.raises(ValueError, match=message):
        build(name, **options)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("finetune", "mem_size"),
        ("joint", "mem_size"),
        ("joint", "losses"),
        ("joint", "gradient"),
        ("icarl", "tune_epochs"),
        ("bic", "nca"),
        ("podnet", "divisor"),
        ("podnet", "reduction"),
        ("ssil", "tune_lr"),
        ("foster", "inference"),
        ("afc", "spatial_weight"),
        ("dytox", "inference"),
        ("baseline", "temperature"),
        ("herding-replay", "form"),
        ("hfc", "losses"),
    ],
)
def test_an_option_of_one_method_given_to_another_is_an_error_that_names_it(name, option):
    with pytest.raises(TypeError, match=option):
        build(name, **{option: "hfc"})


@pytest.mark.parametrize("name", ["podnet", "podnet-cscct"])
def test_spatial_maps_weigh_3_and_5_with_nearest_means_as_published_for_cifar_unless_told_otherwise(
    name,
):
    assert build(name).spatial_weight == 3
    assert build(name, inference="nme").spatial_weight == 5
    assert build(name, inference="nme", spatial_weight=2).spatial_weight == 2


@pytest.mark.parametrize("name", ["finetune", "herding-replay", "joint"])
def test_a_second_memory_is_refused_before_training(name):
    strategy = build(name, mlp("growing"), plugins=[HerdingReplayPlugin(mem_size=6)])
    with pytest.raises(ValueError, match="cannot act in FineTune|two memories"):
        train(strategy, benchmark_of().train_stream[:1])


def test_the_simple_methods_take_any_model():
    for name in ("finetune", "herding-replay", "joint", "baseline", "icarl", "ssil"):
        model = mlp("growing")
        strategy = build(name, model, train_mb_size=12, eval_mb_size=64)
        train(strategy, benchmark_of().train_stream[:2])
        strategy.eval(benchmark_of().test_stream[:2])
        assert strategy.mb_output is None or strategy.mb_output.isfinite().all()
        assert isinstance(model[1], GrowingLinear) and model[1].out_features == 6


@pytest.mark.parametrize(
    ("name", "options", "others", "said"),
    [
        ("herding-replay", dict(losses="hfc"), {}, "hfc_losses 'hfc', now 'host'"),
        ("icarl", dict(divisor="all"), {}, "divisor 'all', now 'seen'"),
        (
            "podnet",
            dict(nca="paper", tune_epochs=2),
            dict(tune_epochs=3),
            "nca 'paper', now 'code'; tune_epochs 2, now 3",
        ),
        (
            "podnet-cscct",
            {},
            dict(reduction="rows", losses="grd"),
            "hfc_losses 'host', now 'grd'; reduction 'elements', now 'rows'",
        ),
        ("foster", dict(beta=0.5), {}, "beta 0.5, now 0.96"),
        (
            "foster",
            dict(beta=[0.9, 0.8]),
            dict(beta=(0.9, 0.7)),
            r"beta \(0.9, 0.8\), now \(0.9, 0.7\)",
        ),
        ("dytox", {}, dict(divergence_weight=0.2), "divergence_weight 0.1, now 0.2"),
    ],
)
def test_a_state_trained_with_other_options_is_refused(name, options, others, said):
    state = build(name, **options).state_dict()
    with pytest.raises(ValueError, match=f"other options \\({said}\\)"):
        build(name, **others).load_state_dict(state)
