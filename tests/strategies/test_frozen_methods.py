"""Methods on frozen features against numpy: nearest class mean, ridge regression on random features,
a linear head with replay.
"""

import csv

import numpy as np
import pytest
import torch
from method_runs import moved, weights
from strategy_runs import SMALL_VIT, At, benchmark_of, herding_of, test_images, train
from tiny_runs import TinyRecipe
from tiny_runs import build as tiny_build

from avalanche_hfc.lab.run import run
from avalanche_hfc.models import ResNet32, TSAViT, ViT
from avalanche_hfc.models.closed_form import RIDGES
from avalanche_hfc.plugins import GFCPlugin, HerdingReplayPlugin
from avalanche_hfc.strategies import STRATEGIES

JOINT = dict(num_steps=1, order=[4, 1, 5, 0, 2, 3])
MODELS = {
    "vit": lambda: ViT("vit_tiny_patch16_224", **{**SMALL_VIT, "msa_blocks": 1}),
    "tsavit": lambda: TSAViT("vit_tiny_patch16_224", **SMALL_VIT),
    "resnet": lambda: ResNet32(in_channels=1),
}


def build(name, *, model="tsavit", lr=0.1, **options):
    torch.manual_seed(5)
    network = MODELS[model]()
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, weight_decay=0.1)
    options = {"train_mb_size": 7, "eval_mb_size": 64, "evaluator": None, **options}
    return STRATEGIES[name](model=network, optimizer=optimizer, **options)


def features(model, stream):
    """(features, labels) as float64 arrays, image by image, in the order of the stream."""
    data = [(x, y) for experience in stream for x, y, *_ in experience.dataset.eval()]
    model.eval()
    with torch.no_grad():
        found = np.stack([model.embed(x[None])[0].double().numpy() for x, _ in data])
    return found, np.array([y for _, y in data])


def logits_of(model, benchmark):
    with torch.no_grad():
        return model.eval()(test_images(benchmark)[0]).double().numpy()


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.mark.parametrize("model", MODELS)
def test_ncm_predicts_by_the_distance_to_the_unit_mean_of_all_images_of_a_class(model):
    benchmark = benchmark_of()
    strategy = train(build("ncm", model=model), benchmark.train_stream)
    known, labels = features(strategy.model, benchmark.train_stream)
    asked, _ = features(strategy.model, benchmark.test_stream)
    expected = np.empty((len(asked), 6))
    for k in range(6):
        mean = unit(unit(known[labels == k]).mean(0))
        expected[:, k] = -((unit(asked) - mean) ** 2).sum(1)
    np.testing.assert_allclose(logits_of(strategy.model, benchmark), expected, atol=2e-6)
    for k, mean in strategy.class_means().items():
        np.testing.assert_allclose(mean, unit(unit(known[labels == k]).mean(0)), atol=1e-6)


def tensors_of(state):
    """All tensors inside nested dicts and lists."""
    if isinstance(state, torch.Tensor):
        return [state]
    inside = state.values() if isinstance(state, dict) else state
    return [
        found
        for part in (inside if isinstance(state, dict | list | tuple) else ())
        for found in tensors_of(part)
    ]


def ridge_by_hand(known, labels, ridge):
    return np.linalg.solve(
        known.T @ known + ridge * np.eye(known.shape[1]), known.T @ np.eye(6)[labels]
    )


def held_out(labels):
    """The second image of each class, and every fifth after it."""
    met, chosen = dict.fromkeys(range(6), 0), []
    for label in labels:
        chosen.append(met[label] % 5 == 1)
        met[label] += 1
    return np.array(chosen)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("ridge", [None, 0.3])
def test_ranpac_has_the_ridge_solution_over_all_images_of_all_steps(model, ridge):
    benchmark, fixed = benchmark_of(per_class=12), ridge is not None
    strategy = build("ranpac", model=model, num_features=50, ridge=ridge)
    train(strategy, benchmark.train_stream)
    projection = strategy.model.head.projection.double().numpy()
    (known, labels), (asked, _) = (
        features(strategy.model, stream)
        for stream in (benchmark.train_stream, benchmark.test_stream)
    )
    known, asked = (np.maximum(part @ projection, 0) for part in (known, asked))
    if ridge is None:
        judged = held_out(labels)
        errors = [
            (
                (
                    np.eye(6)[labels[judged]]
                    - known[judged] @ ridge_by_hand(known[~judged], labels[~judged], r)
                )
                ** 2
            ).sum()
            for r in RIDGES
        ]
        ridge = RIDGES[int(np.argmin(errors))]
        assert min(errors) < 0.9 * max(errors)
    assert strategy.chosen_ridge == ridge
    kept = strategy.state_dict()  # a matrix of held-out images only where λ is chosen by them
    assert sum(value.shape == (50, 50) for value in tensors_of(kept)) == (1 if fixed else 2)
    np.testing.assert_allclose(
        logits_of(strategy.model, benchmark), asked @ ridge_by_hand(known, labels, ridge), atol=1e-3
    )


@pytest.mark.parametrize(("name", "options"), [("ncm", {}), ("ranpac", {"num_features": 50})])
def test_three_steps_in_any_batches_end_as_one_step_with_all_classes(name, options):
    def rows(benchmark, **more):
        strategy = train(build(name, **options, **more), benchmark.train_stream)
        return strategy.model.head.rows.numpy(), getattr(strategy, "chosen_ridge", None)

    together, ridge = rows(benchmark_of(**JOINT), train_mb_size=36)
    for order, batch in (([4, 1, 5, 0, 2, 3], 7), ([3, 2, 0, 5, 1, 4], 1)):
        found, chosen = rows(benchmark_of(order=order), train_mb_size=batch)
        assert chosen == ridge
        np.testing.assert_allclose(found, together, rtol=1e-4, atol=1e-4 * np.abs(together).max())


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["ncm", "ranpac", "frozen-replay"])
def test_the_backbone_keeps_its_bits_with_its_statistics_and_its_flags(name, model):
    """Also under weight decay, with a teacher, and with batch norm in training mode."""
    replay = name == "frozen-replay"
    strategy = build(name, model=model, **({"losses": "hfc", "mem_size": 12} if replay else {}))
    before = weights(strategy)
    train(strategy, benchmark_of().train_stream[:2])
    after = weights(strategy)
    assert moved(before, after) == set() and all(
        (name in after) for name in before if not name.startswith("head.")
    )
    assert after["head.weight" if replay else "head.rows"].any()
    assert all(parameter.requires_grad for parameter in strategy.model.parameters())


def test_frozen_replay_is_logistic_regression_on_features_of_new_images_and_exemplars():
    """One batch of everything: the head after a step of gradient descent, by hand."""
    strategy = build("frozen-replay", mem_size=12, train_mb_size=64, lr=0.1)
    benchmark, begun = benchmark_of(), {}
    strategy.plugins.append(
        At(
            "before_training_epoch",
            lambda s: begun.update(
                weight=s.model.head.weight.detach().double().numpy().copy(),
                bias=s.model.head.bias.detach().double().numpy().copy(),
            ),
        )
    )
    train(strategy, benchmark.train_stream[:1])
    kept = herding_of(strategy).memory.positions().numpy()
    train(strategy, benchmark.train_stream[1:2])
    old, old_labels = features(strategy.model, benchmark.train_stream[:1])
    new, new_labels = features(strategy.model, benchmark.train_stream[1:2])
    x, y = np.concatenate([old[kept], new]), np.concatenate([old_labels[kept], new_labels])
    seen = np.array([0, 1, 4, 5])
    z = x @ begun["weight"][seen].T + begun["bias"][seen]
    p = np.exp(z - z.max(1, keepdims=True))
    p = p / p.sum(1, keepdims=True) - (y[:, None] == seen)
    expected = begun["weight"][seen] - 0.1 * (p.T @ x / len(x) + 0.1 * begun["weight"][seen])
    np.testing.assert_allclose(strategy.model.head.weight.detach()[seen], expected, atol=1e-5)


def test_a_teacher_of_frozen_features_costs_no_second_forward():
    strategy = build("frozen-replay", mem_size=12, losses="hfc", train_mb_size=64)
    benchmark, met = benchmark_of(), []
    train(strategy, benchmark.train_stream[:1])
    for network in (strategy.model, strategy.frozen_teacher.model):
        network.tsa[0].register_forward_hook(lambda *_: met.append("forward"))
    strategy.plugins.append(At("after_training_epoch", lambda s: met.append("end of the epoch")))
    train(strategy, benchmark.train_stream[1:2])
    assert met[:2] == ["forward", "end of the epoch"]  # one batch


@pytest.mark.parametrize("name", ["ncm", "ranpac"])
@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"train_epochs": 3}, ValueError, "train_epochs must be 1, got 3"),
        ({"drop_last": True}, ValueError, "drop_last must be False, got True"),
        ({"losses": "hfc"}, TypeError, "unexpected keyword argument: losses"),
        ({"gradient": "softmax"}, TypeError, "unexpected keyword argument: gradient"),
        ({"mem_size": 20}, TypeError, "mem_size"),
        ({"plugins": [GFCPlugin()]}, ValueError, "takes no GFCPlugin: nothing is trained"),
    ],
)
def test_what_a_method_without_gradients_cannot_use_is_refused_at_once(name, options, kind, said):
    with pytest.raises(kind, match=said):
        build(name, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_features": 0}, "num_features must be a whole number of 1 or more, got 0"),
        ({"ridge": 0}, "ridge must be a number above 0, got 0"),
    ],
)
def test_a_bad_option_of_ranpac_is_named_with_what_is_allowed(options, said):
    with pytest.raises(ValueError, match=f"RanPAC: {said}"):
        build("ranpac", **options)


def test_a_memory_is_refused_by_a_method_that_counts_every_image_once():
    strategy = build("ncm", plugins=[HerdingReplayPlugin(mem_size=6)])
    with pytest.raises(ValueError, match="cannot act in NCM"):
        train(strategy, benchmark_of().train_stream[:1])


def test_the_two_accuracies_of_a_run_of_ncm_are_one_number(tmp_path):
    run(TinyRecipe("ncm", epochs=1), 0, tmp_path / "run", build=tiny_build)
    with (tmp_path / "run" / "steps.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 and all(row["accuracy"] == row["accuracy_nme"] != "" for row in rows)
    with (tmp_path / "run" / "train.csv").open(newline="") as file:
        assert [(row["step"], row["epoch"]) for row in csv.DictReader(file)] == [
            ("0", "0"),
            ("1", "0"),
            ("2", "0"),
        ]
