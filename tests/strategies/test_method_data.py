"""What methods train on and predict with: hold-out, ratio of batches, all data, nearest means."""

import pytest
import torch
import torch.nn.functional as F
from method_runs import build, moved, steps_of, weights
from strategy_runs import At, benchmark_of, train

from avalanche_hfc.models import BiasLayer
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.strategies.bic import fit_bias
from avalanche_hfc.strategies.ssil import RatioBatches

# BiC


def test_the_fit_of_the_bias_finds_the_pair_that_was_put_in():
    torch.manual_seed(0)
    fair = 3 * torch.randn(4000, 4)
    targets = torch.distributions.Categorical(logits=fair).sample()
    layer = BiasLayer()
    layer.start([2, 3])
    biased = fair.clone()
    biased[:, 2:] = fair[:, 2:] / 0.6
    steps = torch.tensor([0, 0, 1, 1])
    fit_bias(layer, biased, targets, steps, rounds=200, lr=0.1)
    assert layer.alpha.item() == pytest.approx(0.6, abs=0.03) and abs(layer.beta.item()) < 0.1
    assert not layer.alpha.requires_grad and layer.alpha.grad is not None


def test_the_fit_is_a_minimum_of_cross_entropy_plus_a_tenth_of_half_the_square_of_beta():
    torch.manual_seed(1)
    logits, targets, steps = torch.randn(40, 4), torch.randint(4, (40,)), torch.tensor([0, 0, 1, 1])
    layer = BiasLayer()
    layer.start([2, 3])
    fit_bias(layer, logits, targets, steps, rounds=2000, lr=0.1)

    def value(alpha, beta):
        corrected = torch.cat([logits[:, :2], alpha * logits[:, 2:] + beta], 1)
        return F.cross_entropy(corrected, targets).item() + 0.1 * beta**2 / 2

    best, a, b = value(layer.alpha.item(), layer.beta.item()), layer.alpha.item(), layer.beta.item()
    assert all(
        value(a + da, b + db) > best for da, db in ((0.02, 0), (-0.02, 0), (0, 0.02), (0, -0.02))
    )


def test_what_bic_holds_out_is_never_trained_on_and_balanced():
    trained, held = [], []

    def look(s):
        trained.append([tuple(x.flatten().tolist()) for x in s.mb_x])

    strategy = build("bic", mem_size=60, plugins=[At("before_forward", look)])
    fitted = strategy.held_out_logits
    strategy.held_out_logits = lambda data, asked: held.append(data) or fitted(data, asked)
    steps_of(strategy, 3)
    assert len(held) == 2
    images = {image for batch in trained for image in batch}
    for data, num_classes in zip(held, (4, 6), strict=True):
        assert torch.bincount(torch.tensor(list(data.targets))).tolist().count(1) == num_classes
        assert not images & {tuple(x.flatten().tolist()) for x, *_ in data}
    assert (
        len(strategy.memory.memory) + strategy.memory.num_held <= 60
        and strategy.memory.num_held == 6
    )


def test_bic_herds_features_as_they_are():
    rules = {
        options.get("rule"): build("bic", **options).memory.memory.rule
        for options in ({}, {"rule": "greedy"})
    }
    assert rules == {None: "raw", "greedy": "greedy"}


def test_bic_corrects_in_evaluation_only_and_a_memory_of_one_each_is_not_corrected():
    strategy = steps_of(build("bic"), 2)
    head, f = strategy.model.head, torch.randn(5, 32)
    newest = head.bias.class_ids.tolist()
    head.eval()
    corrected = head(f)
    head.train()
    plain = head(f)
    assert (head.bias.alpha.item(), head.bias.beta.item()) != (1, 0)
    expected = plain.clone()
    expected[:, newest] = head.bias.alpha * plain[:, newest] + head.bias.beta
    torch.testing.assert_close(corrected, expected)
    with pytest.warns(UserWarning, match="too small to hold out"):
        strategy = steps_of(build("bic", mem_size=6), 3)
    assert (strategy.model.head.bias.alpha.item(), strategy.model.head.bias.beta.item()) == (1, 0)


# SS-IL


def test_a_batch_of_ssil_is_new_images_and_a_quarter_of_replayed_ones():
    met = []
    plugins = [At("before_forward", lambda s: met.append(s.mb_y.tolist()))]
    strategy = build("ssil", train_mb_size=8, plugins=plugins, train_epochs=1, drop_last=False)
    steps_of(strategy, 2)
    second = met[-2:]
    assert [len(batch) for batch in second] == [10, 6]  # 12 new images: 8 + 4, and 2 replayed each
    new = set(benchmark_of().train_stream[1].classes_in_this_experience)
    assert [sum(y in new for y in batch) for batch in second] == [8, 4] and all(
        y in new for y in second[0][:8]
    )


def test_replayed_positions_come_round_only_when_all_have_been_seen():
    torch.manual_seed(0)
    batches = list(RatioBatches(20, 5, 4, 2, shuffle=True, drop_last=False))
    assert sorted(p for batch in batches for p in batch[:4]) == list(range(20))
    replayed = [p for batch in batches for p in batch[4:]]
    assert sorted(replayed[:5]) == sorted(replayed[5:]) == list(range(20, 25))
    assert [
        len(RatioBatches(21, 5, 4, 2, shuffle=True, drop_last=drop_last))
        for drop_last in (False, True)
    ] == [6, 5]


def test_the_learning_rate_of_ssil_falls_with_the_step_whatever_the_schedule():
    used, asked = [], []
    for options in ({}, {"lr_by_step": False}):
        strategy = build("ssil", train_epochs=1, lr=0.12, **options)
        step = strategy.optimizer.step

        def spy(step=step, strategy=strategy):
            used.append((StepTable.of(strategy).current, strategy.optimizer.param_groups[0]["lr"]))
            step()

        strategy.optimizer.step = spy
        steps_of(strategy, 3)
        asked.append(strategy.optimizer.param_groups[0]["lr"])
        expected = {0: 0.12, 1: 0.06, 2: 0.04} if not options else dict.fromkeys(range(3), 0.12)
        assert dict(used) == pytest.approx(expected)
        used.clear()
    assert asked == [0.12, 0.12]


def test_the_memory_of_ssil_is_the_first_images_of_each_class_and_exactly_its_size():
    strategy = steps_of(build("ssil", mem_size=10), 3)
    memory = strategy.memory
    sizes = [len(memory.memory.of(class_id)) for class_id in memory.memory.classes]
    assert sum(sizes) == 10 and sorted(sizes) == [1, 1, 2, 2, 2, 2]
    targets = torch.cat([torch.tensor(list(source.targets)) for source in memory.sources])
    for class_id in memory.memory.classes:
        kept = memory.memory.of(class_id)
        assert kept.tolist() == (targets == class_id).nonzero()[: len(kept), 0].tolist()


# Joint training


def test_joint_training_starts_each_step_from_the_first_weights_and_sees_all_data():
    met, counts = [], []

    def look(s):
        if s.clock.train_exp_epochs == 0:
            met.append(weights(s))
            counts.append(
                torch.bincount(torch.tensor(list(s.adapted_dataset.targets)), minlength=6).tolist()
            )

    strategy = build("joint", plugins=[At("before_training_epoch", look)])
    first = weights(strategy)
    steps_of(strategy, 3)
    body = {name for name in first if not name.startswith("head.")}
    assert all(not moved({n: first[n] for n in body}, state) for state in met)
    assert counts == [[0, 6, 0, 0, 6, 0], [6, 6, 0, 0, 6, 6], [6] * 6]


# Nearest means


def test_icarl_predicts_the_nearest_mean_of_exemplars():
    benchmark = benchmark_of()
    strategy = train(build("icarl"), benchmark.train_stream[:2])
    outputs = []
    strategy.plugins.insert(
        0, At("after_eval_forward", lambda s: outputs.append((s.mb_x, s.mb_output)))
    )
    strategy.eval(benchmark.test_stream[:2])
    strategy.model.eval()
    with torch.no_grad():
        means = {}
        for part in strategy.memory.exemplars():
            for x, y, *_ in part.eval():
                f = strategy.model.embed(x[None])[0]
                means.setdefault(y, []).append(f / f.norm())
        centres = {y: torch.stack(rows).mean(0) for y, rows in means.items()}
        for x, scores in outputs:
            for image, row in zip(x, scores, strict=True):
                f = strategy.model.embed(image[None])[0]
                distance = {
                    y: (f / f.norm() - c / c.norm()).square().sum().item()
                    for y, c in centres.items()
                }
                assert row.argmax().item() == min(distance, key=distance.get)
                assert all(
                    row[y].item() == pytest.approx(-d, abs=1e-5) for y, d in distance.items()
                )
                assert all(row[y] == -1000 for y in set(range(6)) - set(centres))


def test_the_head_predicts_where_asked_and_inside_a_step():
    met = []

    def look(s):
        met.append(
            (
                s.is_training,
                s.nearest.known,
                s.model_logits() if s.is_eval else None,
                s.model(s.mb_x) if s.is_eval else None,
            )
        )

    benchmark = benchmark_of()
    strategy = build("icarl", eval_every=1, plugins=[At("after_eval_forward", look)])
    strategy.train(benchmark.train_stream[0], eval_streams=[benchmark.test_stream[:1]])
    inside = [(known, a, b) for _, known, a, b in met]
    assert (
        len(inside) > 1
        and not any(known for known, *_ in inside)
        and all(torch.equal(a, b) for _, a, b in inside)
    )
    met.clear()
    strategy.eval(benchmark.test_stream[:1])
    assert met[0][1] and not torch.equal(*met[0][2:])
    head = build("icarl", inference="head", plugins=[At("after_eval_forward", look)])
    met.clear()
    train(head, benchmark.train_stream[:1])
    head.eval(benchmark.test_stream[:1])
    assert all(torch.equal(a, b) for _, _, a, b in met)


def test_means_average_over_mirror_images_if_asked_and_features_are_found_once():
    strategy = build("icarl", flip=True)
    calls = []
    embed = strategy.model.embed
    strategy.model.embed = lambda x, *rest: calls.append(len(x)) or embed(x, *rest)
    steps_of(strategy, 1)
    calls.clear()
    strategy.memory.forget_features()
    strategy.memory.class_means(strategy, flip=True)
    assert sum(calls) == 2 * 12
    fresh = steps_of(build("icarl"), 2)
    plain, mirrored = fresh.memory.class_means(fresh), fresh.memory.class_means(fresh, flip=True)
    data = [(x, y) for part in fresh.memory.exemplars([1]) for x, y, *_ in part.eval()]
    x = torch.stack([image for image, _ in data])
    fresh.model.eval()
    with torch.no_grad():
        one, other = (F.normalize(fresh.model.embed(v)).mean(0) for v in (x, x.flip(-1)))
    torch.testing.assert_close(
        mirrored[1], F.normalize((one + other) / 2, dim=0), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(plain[1], F.normalize(one, dim=0), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(plain[1], mirrored[1], atol=1e-4)


def test_herding_and_nearest_means_ask_for_the_features_of_an_image_once():
    strategy = build("icarl", train_epochs=1)
    calls = []
    embed = strategy.model.embed
    benchmark = benchmark_of()
    strategy.train(benchmark.train_stream[0])
    strategy.model.embed = lambda x, *rest: (
        (calls.append(len(x)) if not torch.is_grad_enabled() else None) or embed(x, *rest)
    )
    strategy.train(benchmark.train_stream[1])
    assert calls == [
        12,
        6,
    ]  # herding: the new images; means: the old exemplars, the new ones are known
