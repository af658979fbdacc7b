"""The published settings, written out a second time from the publications: a slip in either place
shows.
"""

import pytest

from avalanche_hfc.lab import all_names, recipe
from avalanche_hfc.lab.options import ONE_PASS

pytestmark = pytest.mark.quick

TRAIN = {  # optimizer, lr, epochs, batch, weight decay, schedule
    "cifar100-b0-t10-icarl-resnet32": ("sgd", 2.0, 70, 128, 2e-5, "drops"),
    "imagenet100-b0-t10-icarl-resnet18": ("sgd", 2.0, 60, 128, 1e-5, "drops"),
    "cifar100-b0-t10-bic-resnet32": ("sgd", 0.1, 250, 128, 2e-4, "drops"),
    "imagenet100-b0-t10-bic-resnet18": ("sgd", 0.1, 100, 256, 1e-4, "drops"),
    "cifar100-b0-t10-podnet-resnet32": ("sgd", 0.1, 160, 128, 5e-4, "cosine"),
    "imagenet100-b0-t10-podnet-resnet18": ("sgd", 0.05, 90, 64, 5e-4, "cosine"),
    "cifar100-b0-t10-podnet-cscct-resnet32": ("sgd", 0.1, 160, 128, 5e-4, "cosine"),
    "cifar100-b0-t10-ssil-resnet32": ("sgd", 0.1, 200, 128, 1e-3, "drops"),
    "imagenet100-b0-t10-ssil-resnet18": ("sgd", 0.1, 100, 128, 1e-4, "drops"),
    "cifar100-b0-t10-foster-resnet32": ("sgd", 0.1, 170, 128, 5e-4, "cosine"),
    "imagenet100-b0-t10-foster-resnet18": ("sgd", 0.1, 170, 256, 5e-4, "cosine"),
    "cifar100-b0-t10-afc-resnet32": ("sgd", 0.1, 160, 128, 5e-4, "cosine"),
    "imagenet100-b0-t10-afc-resnet18": ("sgd", 0.1, 90, 128, 1e-4, "cosine"),
    "cifar100-b0-t10-dytox-convit": ("adamw", 1.25e-4, 500, 128, 1e-6, "cosine"),
    "imagenet100-b0-t10-dytox-convit": ("adamw", 1.25e-4, 500, 128, 1e-6, "cosine"),
    "cifar100-b0-t10-afc": ("adamw", 6.25e-5, 30, 64, 1e-5, "cosine"),
}


@pytest.mark.parametrize("name", TRAIN)
def test_a_method_with_its_own_backbone_trains_as_published_and_every_other_as_the_released_code(
    name,
):
    for losses in ("", "+hfc") if "resnet" in name or "convit" in name else ("",):
        head, _, backbone = name.rpartition("-") if losses else (name, "", "")
        train = recipe(f"{head}{losses}-{backbone}@paper" if losses else f"{name}@paper").train
        assert (
            train.optimizer,
            train.lr,
            train.epochs,
            train.batch_size,
            train.weight_decay,
            train.schedule,
        ) == TRAIN[name]
        assert train.momentum == (0.9 if train.optimizer == "sgd" else None)
        assert train.decay_by_step == (name == "imagenet100-b0-t10-bic-resnet18")
        assert train.first_epochs == (200 if "foster" in name else None)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        (
            "cifar100-b0-t10-podnet-resnet32",
            dict(spatial_weight=None, flat_weight=1, tune_lr=0.05, tune_epochs=20, scale_lr=0.1),
        ),
        (
            "imagenet100-b0-t10-podnet-cscct-resnet18",
            dict(spatial_weight=8, flat_weight=10, tune_lr=0.01, clustering_weight=3),
        ),
        (
            "imagenet100-b0-t10-podnet",
            dict(spatial_weight=8, flat_weight=10, tune_lr=None, scale_lr=0.05),
        ),  # the rate belongs to SGD
        ("imagenet1000-b0-t10-podnet-cscct", dict(scale_lr=0.05, tune_lr=None)),
        ("imagenet100-b0-t10-afc", dict(importance_weight=10, scale_lr=0.1, tune_lr=None)),
        ("cifar100-b0-t10-afc-resnet32", dict(importance_weight=4, tune_lr=0.05)),
        ("imagenet100-b0-t10-afc-resnet18", dict(importance_weight=10, tune_lr=0.02)),
        ("cifar100-b0-t10-ssil-resnet32", dict(replay_mb_size=32, lr_by_step=True)),
        (
            "cifar100-b0-t10-icarl-resnet32",
            dict(divisor="all", columns="all", flip=True, inference="nme", outputs="sigmoid"),
        ),
        ("imagenet100-b0-t10-icarl", dict(divisor="seen", flip=False)),
        ("cifar100-b0-t10-foster-resnet32", dict(compress_epochs=130, compress_beta=0.97)),
        ("cifar100-b50-t50-foster", dict(compress_epochs=None, compress_beta=0.98, beta=0.95)),
        ("imagenet1000-b0-t10-foster", dict(beta=0.97, compress_beta=0.97)),
        ("cifar100-b0-t10-bic-resnet32", dict(bias_rounds=200, bias_lr=0.1)),
        ("cifar100-b0-t10-dytox", dict(divergence_weight=0.1, tune_epochs=20, repeats=3)),
        ("imagenet100-b0-t10-ranpac", dict(num_features=10000)),
    ],
)
def test_a_method_has_its_published_options(name, values):
    options = dict(recipe(f"{name}@paper").method.options)
    assert {option: options[option] for option in values} == values


@pytest.mark.parametrize(
    ("protocol", "published"),
    [
        ("b0-t5", (0.97, 0.96, 0.95, 0.94)),
        ("b0-t10", tuple(round(0.98 - 0.005 * step, 3) for step in range(9))),
        ("b0-t20", 0.96),
        ("b50-t5", 0.94),
        ("b50-t10", 0.94),
        ("b50-t25", 0.95),
        ("b50-t50", 0.95),
        ("b0-t25", 0.96),  # ours
        ("b0-t50", 0.96),
    ],
)
def test_the_betas_of_foster_are_the_published_ones(protocol, published):
    of_cifar = recipe(f"cifar100-{protocol}-foster@paper")
    assert dict(of_cifar.method.options)["beta"] == published
    said = of_cifar.sources["method.beta"]
    assert said.startswith(
        "our choice" if protocol in ("b0-t25", "b0-t50") else "published: FOSTER"
    )
    assert ("one value for each step" in said) == isinstance(published, tuple)


def test_foster_has_its_batch_of_128_wherever_it_has_its_own_network():
    for name in all_names("paper"):
        if "-foster" in name and "resnet32" in name:
            assert recipe(name).train.batch_size == 128, name
    assert (
        recipe("cifar100-b50-t50-foster@paper").train.batch_size == 64
    )  # that of the released code of HFC


KEEP_THE_LAST = {"bic", "podnet", "podnet-cscct", "foster", "afc", "joint"}  # with a ResNet


def test_incomplete_batches_are_left_out_where_the_authors_leave_them_out():
    for name in all_names("paper"):
        own = recipe(name)
        options = dict(own.method.options)
        if not own.method.name.startswith("avalanche-"):
            assert options["drop_last"] == (
                not (own.model.kind.startswith("resnet") and own.method.name in KEEP_THE_LAST)
                and own.method.name not in ONE_PASS
            ), name
            assert options["reset_optimizer"] == (own.method.name != "ssil"), name
        else:
            assert not {"drop_last", "reset_optimizer"} & options.keys()


@pytest.mark.parametrize("method", ["podnet", "podnet-cscct", "afc"])
def test_methods_that_distil_maps_have_no_relu_after_a_map_and_resnet32_after_no_sum(method):
    plain = {"last_relu": False, "stage_relu": False, "zero_residual": True, "in_channels": 3}
    assert dict(recipe(f"cifar100-b0-t5-{method}-resnet32@paper").model.options) == {
        **plain,
        "block_relu": False,
        "init": "fan_out",
    }
    stem = {"stem": "3x3", "max_pool": True, "weights": None}
    assert dict(recipe(f"imagenet100-b0-t5-{method}-resnet18@paper").model.options) == {
        **plain,
        "block_relu": True,
        **stem,
    }
    of_icarl = dict(recipe("cifar100-b0-t5-icarl-resnet32@paper").model.options)
    assert of_icarl["last_relu"] is False and of_icarl["init"] == "fan_in"
    assert dict(recipe("cifar100-b0-t5-bic-resnet32@paper").model.options)["last_relu"] is True


def test_the_small_scales_have_their_budgets():
    assert recipe("cifar100-b0-t10-hfc@small").memory.mem_size == 200
    assert recipe("cifar100-b0-t10-hfc@medium").memory.mem_size == 1000
    assert recipe("cifar100-b0-t5-m10-hfc@small").memory.per_class == 10
    assert recipe("digits-b50-t5-hfc@demo").memory.mem_size == 20
    assert recipe("digits-b50-t5-m2-hfc@demo").memory.per_class == 2
