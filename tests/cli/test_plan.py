"""`hfc plan`: what a run will cost, before it starts."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from image_folders import COLOURS, TINY, content, hfc, make_folder
from strategy_runs import At

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab import plan as plan_module
from avalanche_hfc.lab.build import build_model, build_strategy
from avalanche_hfc.lab.cli.plan import duration, size
from avalanche_hfc.lab.data import build_benchmark
from avalanche_hfc.lab.describe import phases_by_step
from avalanche_hfc.lab.plan import (
    CHECKPOINTS,
    RUN_SECONDS,
    Measured,
    Stopwatch,
    checkpoint_bytes,
    estimate,
    fits,
    image_bytes,
    measure,
    plan_all,
    real_data,
    shortened_recipe,
    some,
)
from avalanche_hfc.lab.table import cells_of

DIGITS = recipe("digits-b50-t5-hfc@demo")


def plan(own, **options):
    """The estimate of one recipe."""
    ((_, found),) = plan_all([own], **options)
    return found


@pytest.fixture
def even(monkeypatch):
    """100 training images a second in the first step, 50 later, 1000 in evaluation."""
    monkeypatch.setattr(Stopwatch, "rate", lambda self, step: 50.0 if step else 100.0)
    monkeypatch.setattr(plan_module, "evaluation_rate", lambda strategy, benchmark: 1000.0)


def test_the_time_is_that_of_all_images_of_all_steps_epochs_and_passes(even):
    own = override(DIGITS, {"epochs": "3", "first_epochs": "4", "mem_size": "30"})
    found = plan(own, seed=1, batches=1)
    benchmark = build_benchmark(own, 1)
    training, passes, seen_train, seen_test = [], 0, 0, 0
    for step, experience in enumerate(benchmark.train_stream):
        new = len(experience.dataset)
        training.append((new + min(30, seen_train)) * (3 if step else 4) / (50 if step else 100))
        seen_train += new
        seen_test += len(benchmark.test_stream[step].dataset)
        passes += new + seen_test
    assert found.training == pytest.approx(training) and len(training) == 6
    assert found.evaluation == pytest.approx(passes / 1000)
    assert found.seconds == pytest.approx(sum(training) + passes / 1000 + found.fixed)


def test_what_a_run_costs_besides_its_images_is_counted_once_a_run_and_once_a_step():
    own = override(DIGITS, {"epochs": "1"})
    _, sizes = real_data(own, 0, None)
    without = Measured((100.0, 50.0), 1000.0, 0, 0)
    costly = replace(without, building=4.0, of_a_step=0.5)
    added = estimate(own, sizes, costly).seconds - estimate(own, sizes, without).seconds
    assert len(sizes.steps) == 6 and added == pytest.approx(4.0 + 6 * 0.5)
    assert estimate(own, sizes, without).fixed == RUN_SECONDS


def test_epochs_that_tune_are_counted_at_their_own_rate():
    own = override(recipe("digits-b0-t5-podnet@demo"), {"tune_epochs": "4", "epochs": "1"})
    _, sizes = real_data(own, 0, None)
    alike = Measured((100.0, 50.0), 1000.0, 0, 0)
    slow, fast = (
        estimate(own, sizes, replace(alike, phase_rate=rate)).training for rate in (50.0, 200.0)
    )
    assert slow == estimate(own, sizes, alike).training
    for step, ((_, tuned), before, after) in enumerate(
        zip(phases_by_step(own, sizes.steps), slow, fast, strict=True)
    ):
        assert before - after == pytest.approx(tuned / 50 - tuned / 200) and (tuned > 0) == (
            step > 0
        )


def test_batches_of_later_phases_are_timed_apart(monkeypatch):
    watches = []
    monkeypatch.setattr(
        plan_module, "Stopwatch", lambda: watches.append(Stopwatch()) or watches[-1]
    )
    for name, tunes in (("podnet", True), ("herding-replay", False)):
        own = override(recipe(f"digits-b0-t5-{name}@demo"), {"batch_size": "4"})
        found = measure(own, real_data(own, 0, None)[0], "cpu", 2)
        assert (found.phase_rate is not None) == tunes
        images = sum(images for _, images in watches[-1].phases)
        assert images == (16 if tunes else 0)  # one epoch: all images of the trial are exemplars


def test_images_of_every_step_are_counted_as_the_benchmark_deals_them_out():
    own = override(DIGITS, {"num_steps": "1"})
    benchmark = build_benchmark(own, 3)
    source, sizes = real_data(own, 3, None)
    assert sizes.steps == tuple(
        (5, len(experience.dataset)) for experience in benchmark.train_stream
    )
    assert (
        sizes.tests == tuple(len(experience.dataset) for experience in benchmark.test_stream)
        and len(source.class_names) == 10
    )


def test_the_first_batch_of_a_step_warms_up_and_is_left_out():
    watch = Stopwatch()
    watch.steps = {0: [(9.0, 8), (1.0, 8), (3.0, 4)], 1: [(2.0, 8)]}
    assert watch.rate(0) == pytest.approx(12 / 4) and watch.rate(1) == pytest.approx(4)


def test_as_many_batches_as_asked_are_timed_in_each_of_two_steps_the_teacher_at_work_in_the_second(
    monkeypatch,
):
    watches = []
    monkeypatch.setattr(plan_module, "Stopwatch", lambda: watches.append(Stopwatch()) or watches[0])
    found = plan(override(DIGITS, {"batch_size": "4"}), batches=2)
    sizes = {step: [images for _, images in timed] for step, timed in watches[0].steps.items()}
    assert (
        sizes[0] == [4, 4] and sizes[1][:2] == [4, 4] and set(sizes) == {0, 1}
    )  # exemplars of the first step join the second
    assert min(found.measured.rates) > 0 and found.measured.memory > 1e8


def test_a_checkpoint_is_counted_byte_for_byte_and_three_may_stand_on_the_disk(even):
    own = shortened_recipe(DIGITS)
    strategy = build_strategy(own, build_model(own))
    kept = io.BytesIO()
    torch.save(strategy.state_dict(), kept)
    assert checkpoint_bytes(strategy) == pytest.approx(len(kept.getvalue()), rel=0.01)
    found = plan(DIGITS, batches=1)
    assert (
        found.disk == CHECKPOINTS * found.measured.checkpoint + found.rows
        and found.measured.checkpoint > 3 * len(kept.getvalue())
    )  # moments, teacher
    assert plan(recipe("digits-b0-t5-avalanche-naive@demo"), batches=1).measured.checkpoint == 0


def test_the_disk_told_is_about_what_a_run_takes(tmp_path):
    images = make_folder(tmp_path / "images", list(COLOURS)[:4])
    hfc("run", "folder-t2@demo", "--data", images, "--out", tmp_path / "runs", *TINY)
    files = content(tmp_path / "runs" / "folder-b0-t2-hfc@demo" / "0")
    options = dict(zip([word.removeprefix("--") for word in TINY[::2]], TINY[1::2], strict=True))
    found = plan(override(recipe("folder-t2@demo"), options), data_root=images, batches=1)
    assert found.measured.checkpoint == pytest.approx(
        len(files["checkpoint/last/state.pt"]), rel=0.05
    )
    rows = sum(
        len(text) for name, text in files.items() if name.endswith(".csv") and name != "data.csv"
    )
    assert rows / 2 < found.rows < 2 * rows + 1000


def test_few_images_are_taken_again_and_many_are_taken_from_all_over():
    source, _ = real_data(DIGITS, 0, None)
    few = some(plan_module.TensorImages(source.train.images[:3], np.zeros(3, dtype=int)), 10)
    assert torch.equal(
        few.images, source.train.images[[0, 1, 2, 0, 1, 2, 0, 1, 2, 0]]
    ) and few.targets == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    many = some(source.train, 20)
    step = len(source.train) // 20
    assert torch.equal(many.images, source.train.images[: 20 * step : step])


@pytest.mark.parametrize(
    "name", ["digits-b0-t5-foster@demo", "digits-b0-t1-joint@demo", "digits-b0-t5-bic@demo"]
)
def test_methods_with_phases_and_on_the_whole_stream_are_planned_too(name, even):
    found = plan(recipe(name), batches=1)
    assert len(found.training) == recipe(name).data.total_steps and found.seconds > 0


def test_the_command_tells_time_memory_and_disk_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = hfc(
        "plan",
        "cifar100-b0-t10-hfc@small",
        "--synthetic",
        "--batches",
        "1",
        "--batch-size",
        "8",
        "--embed-dim",
        "48",
    )
    assert said.startswith("cifar100-b0-t10-hfc@small on cpu, from random images")
    assert {line.split()[0] for line in said.splitlines()} >= {
        "time",
        "memory",
        "disk",
    } and "three checkpoints" in said
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_the_sum_of_its_runs_and_each_method_is_timed_once(monkeypatch, even):
    measured = []
    measure = plan_module.measure
    monkeypatch.setattr(
        plan_module,
        "measure",
        lambda own, *args: (
            measured.append(own.name) or replace(measure(own, *args), building=0.0, of_a_step=0.0)
        ),
    )
    cells = cells_of("fh", "demo", ["icarl", "hfc"])
    monkeypatch.setattr("avalanche_hfc.lab.table.cells_of", lambda table, scale: cells)
    said = hfc("plan", "fh", "--seeds", "3", "--batches", "1", "--device", "cpu")
    alone = [plan(recipe(entry.recipe), batches=1) for entry in cells]
    lines = {line.split()[0]: line for line in said.splitlines()}
    assert lines["fh"] == "fh @demo on cpu"
    assert lines["runs"].split(maxsplit=1)[1] == "6: 2 recipes, 3 seeds each"
    assert lines["time"].endswith(duration(3 * sum(own.seconds for own in alone)))
    assert lines["disk"].split(maxsplit=1)[1].startswith(size(3 * sum(own.disk for own in alone)))
    again = [override(recipe(cells[0].recipe), {"num_steps": steps}) for steps in ("5", "2")]
    measured.clear()
    found = [estimate for _, estimate in plan_all(again, batches=1)]
    assert len(measured) == 1 and [len(own.training) for own in found] == [5, 2]


def test_missing_data_is_told_with_the_way_out(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"looked for .*cifar-100-python.*--synthetic"):
        hfc("plan", "cifar100-b0-t10-hfc@paper", "--data", tmp_path)
    with pytest.raises(ValueError, match="how many images your data has is not known"):
        hfc("plan", "folder", "--synthetic")
    with pytest.raises(ValueError, match="name the folder of images with --data"):
        hfc("plan", "folder")


def told_of_memory(*given):
    return hfc("plan", "digits-b50-t5-hfc@demo", "--memory", *given).splitlines()


def test_the_memory_of_a_recipe_is_counted_with_its_batch():
    """Weights twice, gradients and two moments; then the activations of a batch."""
    model = build_model(DIGITS)
    model.head.grow(range(10))
    weights = sum(p.numel() * 4 for p in model.parameters())
    (fit, *_) = fits(DIGITS)
    images = DIGITS.train.batch_size * 8 * 8 * 4
    assert fit.fixed == pytest.approx(5 * weights + images, rel=0.01)
    assert fit.whole == fit.fixed + DIGITS.train.batch_size * fit.per_image


def test_checkpointed_activations_are_the_inputs_of_the_blocks_and_one_block():
    (fit, *_) = fits(DIGITS)
    tokens = 5 * 64 * 4  # a class token and four patches, of 64 numbers
    inside = fit.per_image - fit.checkpointed + 2 * tokens  # of one of the two blocks
    assert fit.checkpointed < 0.7 * fit.per_image
    assert inside > 10 * tokens


def bytes_of(*groups):
    return sum(value.nbytes for group in groups for value in group if value is not None)


def held_in_training(name, event, held, **options):
    """What `held` returns for the strategy, largest over the two first steps of a recipe."""
    quick = {"epochs": "1", "train_per_class": "8", "test_per_class": "8", **options}
    own = override(recipe(name), quick)
    met = []
    watch = At(event, lambda strategy: met.append(held(strategy)))
    strategy = build_strategy(own, build_model(own), plugins=[watch])
    for experience in build_benchmark(own, 0).train_stream[:2]:
        strategy.train(experience)
    return own, max(met)


def test_the_student_of_a_compression_is_counted_with_its_gradients_and_moments():
    def held(strategy):
        networks = (strategy.model, strategy.student, strategy.frozen_teacher.model)
        weights = [list(network.parameters()) for network in networks]
        gradients = [[p.grad for p in network] for network in weights]
        moments = [
            state.values()
            for optimizer in (strategy.optimizer, strategy.phase_running.optimizer)
            for state in optimizer.state.values()
        ]
        return bytes_of(*weights, *gradients, *moments)

    own, met = held_in_training(
        "digits-b0-t5-foster@demo", "after_phase_iteration", held, **{"compress-epochs": "1"}
    )
    images = own.train.batch_size * 8 * 8 * 4
    assert fits(own)[0].fixed == pytest.approx(met + images, rel=0.02)


@pytest.mark.parametrize("method", ["podnet", "podnet-cscct", "afc"])
def test_the_maps_of_the_whole_batch_are_counted(method):
    def held(strategy):
        if strategy.mb_features is None:  # the first step
            return 0
        embedding, stages, tokens = strategy.mb_features
        teacher = strategy.teacher_features()[0]
        compared = [embedding, *stages]
        own = bytes_of(compared, compared, [tokens])  # with the gradients of what is compared
        return (own + bytes_of([teacher.embedding, *teacher.stages, teacher.tokens])) / len(
            strategy.mb_x
        )

    own, met = held_in_training(
        f"digits-b0-t5-{method}@demo",
        "before_backward",
        held,
        **{"batch-size": "8", "tune-epochs": "1"},
    )
    few, many = (fits(override(own, {"batch_size": n}))[0] for n in ("8", "16"))
    assert (many.fixed - few.fixed) / 8 == pytest.approx(met + 8 * 8 * 4)


def test_maps_that_are_kept_add_to_the_activations():
    podnet = recipe("digits-b0-t5-podnet@demo")
    model = build_model(podnet)
    build_strategy(podnet, model)  # gives it its head
    model.head.grow(range(10))
    alone, _ = image_bytes(model, torch.zeros(4, 1, 8, 8), None)
    assert fits(podnet)[0].per_image > alone


def test_activations_are_those_that_a_backward_pass_reads():
    """Of two linear layers with a ReLU: its output, once. The images of a batch are there anyway."""
    model = torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.ReLU(), torch.nn.Linear(20, 3))
    assert image_bytes(model, torch.zeros(4, 10), None) == (4 * 20, 4 * 20)


def test_half_precision_keeps_less_of_each_image():
    float32, bfloat16, float16 = fits(DIGITS)
    assert 0.4 < bfloat16.per_image / float32.per_image < 0.9
    assert bfloat16.per_image == float16.per_image and bfloat16.fixed > float32.fixed


def test_memory_is_told_with_the_options_of_hfc_run():
    assert told_of_memory("1GB")[-1].endswith("as it is")
    assert "does not fit" in told_of_memory("1kB")[1]
    assert told_of_memory("1kB")[-1].endswith("no setting fits")
    fit = fits(DIGITS)[0]
    room = f"{(fit.whole + fit.least) / 2e3:.3f}kB"
    assert told_of_memory(room)[-1].endswith("--checkpoint-activations true")


@pytest.mark.parametrize("given", ["8", "GB", "-1GB", "eight GB"])
def test_a_memory_that_is_no_size_is_refused(given):
    with pytest.raises(ValueError, match="must be a size such as 8GB or 512MB"):
        hfc("plan", "digits-b0-t5-hfc@demo", f"--memory={given}")
