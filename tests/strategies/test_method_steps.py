"""The parts of a method's step beside its loss: phases, heads, hold-out, batches, importance, nearest means."""

import math
from functools import partial

import method_loops as m
import pytest
import torch
import torch.nn.functional as F
from strategy_runs import SMALL_VIT, At, benchmark_of, train

from avalanche_hfc.losses import nca
from avalanche_hfc.models import BiasLayer, DyToxModel, ResNet32, TSAViT, ViTEncoder
from avalanche_hfc.plugins.features import features_of
from avalanche_hfc.plugins.steps import StepTable
from avalanche_hfc.plugins.teacher import FrozenTeacher
from avalanche_hfc.strategies import STRATEGIES
from avalanche_hfc.strategies.bic import fit_bias
from avalanche_hfc.strategies.phases import lr_factor, optimizer_like
from avalanche_hfc.strategies.ssil import RatioBatches


def build(name, *, model=None, lr=0.05, optimizer=None, **options):
    torch.manual_seed(5)
    if model is None:
        small = dict(SMALL_VIT)
        model = DyToxModel(ViTEncoder("vit_tiny_patch16_224", **small)) if name == "dytox" else TSAViT("vit_tiny_patch16_224", **small)
    memory = {} if name in ("finetune", "joint") else {"mem_size": 12}
    optimizer = optimizer(model.parameters()) if optimizer else torch.optim.SGD(model.parameters(), lr=lr)
    sizes = dict(train_mb_size=12, train_epochs=2, eval_mb_size=64)
    return STRATEGIES[name](model=model, optimizer=optimizer, evaluator=None, **{**memory, **sizes, **options})


def weights(strategy):
    return {name: value.clone() for name, value in strategy.model.state_dict().items()}


def moved(before, after):
    return {name for name in before if name in after and before[name].shape == after[name].shape and not before[name].equal(after[name])}


def steps_of(strategy, num_steps, **benchmark_options):
    return train(strategy, benchmark_of(**benchmark_options).train_stream[:num_steps])


# Tuning


@pytest.mark.parametrize("name", ["podnet", "podnet-cscct", "afc"])
def test_old_proxies_rest_in_the_main_phase_and_proxies_alone_move_in_the_tuning(name):
    marks = []
    events = {"before_training_epoch": "train", "before_phase_epoch": "tune"}
    watch = [At(event, lambda s, phase=phase: marks.append((phase, weights(s)))) for event, phase in events.items()]
    strategy = steps_of(build(name, plugins=watch, tune_epochs=2), 2)
    second = [state for phase, state in marks if "head.old_proxies" in state and len(state["head.old_proxies"])]
    trained, tuned, end = second[0], second[-2], weights(strategy)
    assert "head.old_proxies" not in moved(trained, tuned) and {"head.new_proxies", "head.scale"} <= moved(trained, tuned)
    assert moved(tuned, end) == {"head.old_proxies", "head.new_proxies"}
    assert [phase for phase, _ in marks] == ["train"] * 4 + ["tune"] * 2


@pytest.mark.parametrize("name", ["podnet", "dytox"])
def test_tuning_sees_as_many_images_of_every_class_with_the_new_ones_herded_and_main_losses_left_out(name):
    seen, terms = [], []
    strategy = build(name, tune_epochs=1, plugins=[At("after_phase_epoch", lambda s: terms.append(set(s.losses.means)))])
    loss = strategy.tuning_loss
    strategy.tuning_loss = lambda x, y: seen.append(y) or loss(x, y)
    steps_of(strategy, 3)
    last = torch.cat(seen)[-12:]
    assert torch.bincount(last).tolist() == [2] * 6
    assert terms == [{"total", "classification"}] * 2


def test_dytox_tunes_everything_but_the_encoder():
    marks = []
    strategy = steps_of(build("dytox", tune_epochs=1, plugins=[At("before_phase_epoch", lambda s: marks.append(weights(s)))]), 2)
    names = moved(marks[0], weights(strategy))
    assert {name.split(".")[1] for name in names} == {"block", "tokens", "heads"} and not any(name.startswith("encoder") for name in names)
    assert {"head.tokens.0", "head.heads.0.linear.weight"} <= names


def test_the_rate_of_tuning_is_constant_and_its_own():
    rates = []
    look = At("after_phase_epoch", lambda s: rates.append(s.phase_running.optimizer.param_groups[0]["lr"]))
    steps_of(build("podnet", tune_epochs=2, plugins=[look], lr=0.08), 2)
    steps_of(build("podnet", tune_epochs=2, tune_lr=0.3, plugins=[look]), 2)
    steps_of(build("dytox", tune_epochs=1, plugins=[look], lr=0.08), 2)
    assert rates == pytest.approx([0.04, 0.04, 0.3, 0.3, 0.008])


def test_new_proxies_start_as_centres_of_the_old_models_features():
    met = []

    def look(s):
        if s.clock.train_exp_epochs == 0 and StepTable.of(s).current == 1:
            features = F.normalize(features_of(s.model, s.experience.dataset, batch_size=64, device=s.device))
            met.append((features, torch.tensor(list(s.experience.dataset.targets)), s.model.head.new_proxies.clone(), s.model.head))

    strategy = build("podnet", tune_epochs=1, num_proxies=6, plugins=[At("before_training_epoch", look)])
    steps_of(strategy, 2)
    features, labels, proxies, head = met[0]
    norm = head.old_proxies[:2].norm(dim=-1).mean()
    for row, class_id in enumerate(head.new_ids.tolist()):
        own = features[labels == class_id]  # six images, six proxies: the centres are the images
        nearest = torch.cdist(F.normalize(proxies[row], dim=-1), own).amin(1)
        assert nearest.max() < 1e-3 and proxies[row].norm(dim=-1).std() < 1e-3 * norm


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
    assert all(value(a + da, b + db) > best for da, db in ((0.02, 0), (-0.02, 0), (0, 0.02), (0, -0.02)))


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
    assert len(strategy.memory.memory) + strategy.memory.num_held <= 60 and strategy.memory.num_held == 6


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
    strategy = build("ssil", train_mb_size=8, plugins=[At("before_forward", lambda s: met.append(s.mb_y.tolist()))], train_epochs=1)
    steps_of(strategy, 2)
    second = met[-2:]
    assert [len(batch) for batch in second] == [10, 6]  # 12 new images: 8 + 4, and 2 replayed each
    new = set(benchmark_of().train_stream[1].classes_in_this_experience)
    assert [sum(y in new for y in batch) for batch in second] == [8, 4] and all(y in new for y in second[0][:8])


def test_replayed_positions_come_round_only_when_all_have_been_seen():
    torch.manual_seed(0)
    batches = list(RatioBatches(20, 5, 4, 2, shuffle=True, drop_last=False))
    assert sorted(p for batch in batches for p in batch[:4]) == list(range(20))
    replayed = [p for batch in batches for p in batch[4:]]
    assert sorted(replayed[:5]) == sorted(replayed[5:]) == list(range(20, 25))
    assert [len(RatioBatches(21, 5, 4, 2, shuffle=True, drop_last=drop_last)) for drop_last in (False, True)] == [6, 5]


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


# FOSTER


def test_boosting_starts_from_the_old_logits_and_the_student_from_the_old_model():
    met = {}

    def start(s):
        if StepTable.of(s).current == 1 and s.clock.train_exp_epochs == 0:
            x = torch.randn(4, 1, 8, 8)
            teacher = FrozenTeacher.of(s).model
            zeros = torch.zeros(4, 32)
            met["boosted"] = s.model.head.boost(teacher.embed(x), zeros)[:, [1, 4]], teacher(x)[:, [1, 4]]
            met["extractor"] = s.model.embed(x), teacher.embed(x)

    def student(s):
        x = torch.randn(4, 1, 8, 8)
        teacher = FrozenTeacher.of(s).model
        s.student.eval()
        met["student"] = s.student(x)[:, [1, 4]], teacher(x)[:, [1, 4]]
        s.student.train()

    plugins = [At("before_training_epoch", start), At("before_phase_epoch", student)]
    strategy = build("foster", compress_epochs=1, plugins=plugins)
    model = strategy.model
    steps_of(strategy, 2)
    for one, other in met.values():
        torch.testing.assert_close(one, other)
    assert strategy.model is model and strategy.student is None


def test_compression_leaves_the_boosted_network_alone_falls_along_a_cosine_and_gives_the_model_the_students_weights():
    met = []

    def look(s):
        met.append((weights(s), {n: v.clone() for n, v in s.student.state_dict().items()}, s.phase_running.optimizer.param_groups[0]))

    optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3)  # noqa: E731
    rates = []
    note = At("after_phase_epoch", lambda s: rates.append(s.phase_running.optimizer.param_groups[0]["lr"]))
    plugins = [At("after_phase_epoch", look), note]
    strategy = steps_of(build("foster", compress_epochs=3, plugins=plugins, optimizer=optimizer), 2)
    assert not moved(met[0][0], met[2][0]) and moved(met[0][1], met[2][1])
    assert rates == pytest.approx([0.05, 0.05 * 0.75, 0.05 * 0.25])
    assert met[2][2]["weight_decay"] == 0 and met[2][2]["momentum"] == 0.9
    assert not moved(met[2][1], weights(strategy))


def test_foster_compresses_with_the_weighted_softmax_of_the_boosted_network():
    met = []
    strategy = build("foster", compress_epochs=1, compress_beta=0.6)
    loss = strategy.compression_loss

    def spy(x, y):
        with torch.no_grad():
            boosted = strategy.model.head.boost(FrozenTeacher.of(strategy).model.embed(x), strategy.model.embed(x))
            logits = strategy.student(x)
        value = loss(x, y)
        counts = torch.bincount(torch.tensor(list(strategy.adapted_dataset.targets)), minlength=6).tolist()
        steps = StepTable.of(strategy).on(logits).tolist()
        expected = m.compression(logits.tolist(), boosted.tolist(), steps, m.class_weights(counts, steps, 0.6), 2)
        met.append((value["compression"].item(), expected))
        return value

    strategy.compression_loss = spy
    steps_of(strategy, 2)
    assert met and all(value == pytest.approx(expected, rel=1e-4) for value, expected in met)


# AFC


def keep_gradient(captured, module, inputs, output):
    output.retain_grad()
    captured.append(output)


def test_importance_is_the_squared_gradient_of_the_loss_by_channel_over_new_data_and_old_exemplars():
    strategy = build("afc", tune_epochs=1)
    found = {}
    original = strategy.find_importance

    def spy(asked):
        found["own"] = original(asked)
        data = [*strategy.experience.dataset.train()]
        for part in strategy.memory.old_exemplars(strategy.experience):
            data += [*part]
        found["num"] = len(data)
        sums = None
        strategy.model.eval()
        for x, y, *_ in data:
            captured = []
            handle = strategy.model.backbone.blocks[0].register_forward_hook(partial(keep_gradient, captured))
            logits = strategy.model(x[None])
            steps = StepTable.of(strategy).on(logits)
            nca(logits, torch.tensor([y]), steps, scale=strategy.model.head.scale).sum().backward()
            handle.remove()
            grads = captured[0].grad[:, 1:]  # without the class token, (1, N, D)
            sums = grads.square().sum((0, 1)) + (0 if sums is None else sums)
        strategy.model.zero_grad()
        strategy.model.train()
        found["loop"] = sums / sums.mean()
        return found["own"]

    strategy.find_importance = spy
    steps_of(strategy, 2)
    assert found["num"] == 12 + 6  # twelve new images; three of each old class are kept
    for importance in found["own"]:  # one block: all four stages are its end
        torch.testing.assert_close(importance, found["loop"], rtol=2e-3, atol=1e-5)


def test_the_importance_pass_moves_no_batch_norm_statistics():
    marks = []
    strategy = build("afc", model=ResNet32(in_channels=1), tune_epochs=1)
    original = strategy.find_importance

    def spy(asked):
        before = weights(strategy)
        result = original(asked)
        marks.append(moved(before, weights(strategy)))
        return result

    strategy.find_importance = spy
    steps_of(strategy, 2)
    assert marks == [set(), set()] and strategy.model.stem.training


# Joint training


def test_joint_training_starts_each_step_from_the_first_weights_and_sees_all_data():
    met, counts = [], []

    def look(s):
        if s.clock.train_exp_epochs == 0:
            met.append(weights(s))
            counts.append(torch.bincount(torch.tensor(list(s.adapted_dataset.targets)), minlength=6).tolist())

    strategy = build("joint", plugins=[At("before_training_epoch", look)])
    first = weights(strategy)
    steps_of(strategy, 3)
    body = {name for name in first if not name.startswith("head.")}
    assert all(not moved({n: first[n] for n in body}, state) for state in met)
    assert counts == [[0, 6, 0, 0, 6, 0], [6, 6, 0, 0, 6, 6], [6] * 6]
    going_on = build("joint", from_scratch=False, plugins=[At("before_training_epoch", look)])
    met.clear()
    steps_of(going_on, 2)
    assert moved({n: met[0][n] for n in body}, met[1])


# Nearest means


def test_icarl_predicts_the_nearest_mean_of_exemplars():
    benchmark = benchmark_of()
    strategy = train(build("icarl"), benchmark.train_stream[:2])
    outputs = []
    strategy.plugins.insert(0, At("after_eval_forward", lambda s: outputs.append((s.mb_x, s.mb_output))))
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
                distance = {y: (f / f.norm() - c / c.norm()).square().sum().item() for y, c in centres.items()}
                assert row.argmax().item() == min(distance, key=distance.get)
                assert all(row[y].item() == pytest.approx(-d, abs=1e-5) for y, d in distance.items())
                assert all(row[y] == -1000 for y in set(range(6)) - set(centres))


def test_the_head_predicts_where_asked_and_inside_a_step():
    met = []

    def look(s):
        met.append((s.is_training, s.nearest.known, s.model_logits() if s.is_eval else None, s.model(s.mb_x) if s.is_eval else None))

    benchmark = benchmark_of()
    strategy = build("icarl", eval_every=1, plugins=[At("after_eval_forward", look)])
    strategy.train(benchmark.train_stream[0], eval_streams=[benchmark.test_stream[:1]])
    inside = [(known, a, b) for _, known, a, b in met]
    assert len(inside) > 1 and not any(known for known, *_ in inside) and all(torch.equal(a, b) for _, a, b in inside)
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
    torch.testing.assert_close(mirrored[1], F.normalize((one + other) / 2, dim=0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(plain[1], F.normalize(one, dim=0), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(plain[1], mirrored[1], atol=1e-4)


def test_herding_and_nearest_means_ask_for_the_features_of_an_image_once():
    strategy = build("icarl", train_epochs=1)
    calls = []
    embed = strategy.model.embed
    benchmark = benchmark_of()
    strategy.train(benchmark.train_stream[0])
    strategy.model.embed = lambda x, *rest: (calls.append(len(x)) if not torch.is_grad_enabled() else None) or embed(x, *rest)
    strategy.train(benchmark.train_stream[1])
    assert calls == [12, 6]  # herding: the new images; means: the old exemplars, the new ones are known


# Parts of phases


def test_a_cosine_falls_from_one_to_nearly_nothing_and_a_constant_stays():
    assert [lr_factor("cosine", e, 4) for e in range(4)] == pytest.approx([(1 + math.cos(math.pi * e / 4)) / 2 for e in range(4)])
    assert {lr_factor("constant", e, 4) for e in range(4)} == {1.0}


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adam, torch.optim.RMSprop])
def test_an_optimizer_for_a_phase_is_of_the_same_kind_and_options(kind):
    parameter = torch.nn.Parameter(torch.zeros(1))
    made = optimizer_like(kind([torch.nn.Parameter(torch.zeros(2))], lr=0.3, weight_decay=0.7), [parameter], lr=0.1)
    assert type(made) is kind and made.param_groups[0]["weight_decay"] == 0.7 and made.param_groups[0]["lr"] == 0.1
    assert made.param_groups[0]["params"] == [parameter]
