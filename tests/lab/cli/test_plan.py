"""`hfc plan`: what a run will cost, before it starts."""

import io
import time
from dataclasses import replace

import pytest
import torch
from image_folders import COLOURS, TINY, content, hfc, make_folder
from strategy_runs import At

from avalanche_hfc.lab import override, recipe
from avalanche_hfc.lab import plan as plan_module
from avalanche_hfc.lab.build import build_model, build_strategy
from avalanche_hfc.lab.cli.look import size
from avalanche_hfc.lab.data import build_benchmark
from avalanche_hfc.lab.describe import duration, phases_by_step
from avalanche_hfc.lab.plan import (
    CHECKPOINTS,
    Measured,
    Stopwatch,
    checkpoint_bytes,
    estimate,
    fits,
    measure,
    plan_all,
    real_data,
    shortened_recipe,
)
from avalanche_hfc.lab.table import cells_of
from avalanche_hfc.strategies._base import compilation

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


def test_the_trial_trains_in_the_form_of_the_recipe_and_compiling_is_counted_once_a_run(
    monkeypatch,
):
    compilations = []

    def slow(graph, inputs):
        compilations.append(graph)
        time.sleep(0.5)
        return graph.forward

    met = set()
    record = At("after_forward", lambda s: met.add(s.mb_output.dtype))
    build = plan_module.build_strategy
    monkeypatch.setattr(
        plan_module,
        "build_strategy",
        lambda *a, plugins, **k: build(*a, plugins=[*plugins, record], **k),
    )
    monkeypatch.setattr(compilation, "COMPILER", slow)
    torch.compiler.reset()
    compilation.compiled.cache_clear()
    own = override(DIGITS, {"batch_size": "4", "precision": "bfloat16", "compile": "true"})
    found = measure(own, real_data(own, 0, None)[0], "cpu", 3)
    assert met == {torch.bfloat16}
    assert found.building > 0.5 * len(compilations) >= 1.0  # in training, and as a teacher
    assert min(found.rates) > 3 * 4 / 1.0  # a batch with the teacher's compilation is slower


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
