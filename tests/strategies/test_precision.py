"""Precision of the forward pass, TF32, scaled gradients, compilation: what changes, and what does
not.
"""

import subprocess
import sys
import warnings
from pathlib import Path

import method_runs
import pytest
import torch
from strategy_runs import At, SmallResNet, benchmark_of, differing, hfc, left_by, mlp, train, vit

from avalanche_hfc import _compiled
from avalanche_hfc.models.modes import output
from avalanche_hfc.strategies._base import compilation, precision
from avalanche_hfc.strategies._base.precision import Precision


def build(**options):
    torch.manual_seed(1)
    return hfc(vit(), **options)


def trained(num_steps=2, scaler=None, **options):
    strategy = build(**options)
    strategy.hardware.precision.scaler = scaler
    return train(strategy, benchmark_of().train_stream[:num_steps])


@pytest.fixture(scope="module")
def float32():
    return left_by(trained())


def logits_met(strategy, experience):
    """dtypes of the outputs of the model: in training and in evaluation."""
    met = {True: set(), False: set()}
    strategy.model.head.register_forward_hook(
        lambda module, inputs, output: met[module.training].add(output.dtype)
    )
    strategy.train(experience)
    strategy.eval(experience)
    return met


@pytest.mark.quick
def test_bfloat16_is_that_of_the_forward_pass_in_training_alone():
    strategy = build(precision="bfloat16")
    met = logits_met(strategy, benchmark_of().train_stream[0])
    assert met == {True: {torch.bfloat16}, False: {torch.float32}}
    weights = strategy.model.state_dict().values()
    moments = [v for state in strategy.optimizer.state.values() for v in state.values()]
    dtypes = {value.dtype for value in (*weights, *moments) if value.is_floating_point()}
    assert dtypes == {torch.float32}


@pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler is enabled")  # without a GPU
def test_float16_on_a_cpu_is_refused():
    with pytest.raises(ValueError, match="HFCStrategy: precision 'float16' needs a GPU"):
        build(precision="float16")
    assert Precision("HFC", "float16", torch.device("cuda")).scaler is not None
    assert Precision("HFC", "bfloat16", torch.device("cuda")).scaler is None


def test_a_cpu_without_instructions_for_bfloat16_trains_in_it_after_a_line(monkeypatch):
    monkeypatch.setattr(precision, "has_bfloat16", lambda: False)
    with pytest.warns(UserWarning, match="no instructions for bfloat16: .* twice as long"):
        strategy = build(precision="bfloat16", train_epochs=1)
    strategy.train(benchmark_of().train_stream[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Precision("HFC", "float32", torch.device("cpu"))
        Precision("HFC", "bfloat16", torch.device("cuda"))
        monkeypatch.undo()
        if " avx512_bf16 " in Path("/proc/cpuinfo").read_text():
            Precision("HFC", "bfloat16", torch.device("cpu"))


def test_an_evaluation_inside_an_epoch_is_in_float32():
    strategy = build(precision="bfloat16", train_epochs=1, eval_every=1, peval_mode="iteration")
    benchmark, met = benchmark_of(), set()
    strategy.plugins.append(At("after_eval_forward", lambda s: met.add(s.mb_output.dtype)))
    strategy.train(benchmark.train_stream[0], eval_streams=[benchmark.test_stream[0]])
    assert met == {torch.float32}


def test_an_unknown_precision_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="float64.*float32"):
        build(precision="float64")


def test_a_scale_of_the_gradients_changes_no_weight(float32):
    """A power of two: not even the last bit."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=3)
    assert differing(float32, left_by(trained(scaler=scaler))) == []
    assert scaler.get_scale() > 2.0**12


def test_a_batch_whose_gradients_overflow_changes_nothing_but_the_scale():
    strategy = build(train_epochs=1)
    strategy.hardware.precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    seen = []
    strategy.plugins[0].before_update = lambda strategy, **_: seen.append(
        [p.grad is None for p in strategy.model.parameters()]
    )
    before = {
        name: p.clone() for name, p in strategy.model.named_parameters() if "head" not in name
    }
    strategy.train(benchmark_of().train_stream[0])
    after = dict(strategy.model.named_parameters())
    assert all(map(all, seen)) and strategy.hardware.precision.scaler.get_scale() < 2.0**127
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_scale_is_part_of_the_state():
    strategy = trained(1, scaler=torch.amp.GradScaler("cpu", init_scale=2.0**9, growth_interval=2))
    other = build()
    other.hardware.precision.scaler = torch.amp.GradScaler("cpu")
    other.load_state_dict(strategy.state_dict())
    assert other.hardware.precision.state_dict() == strategy.hardware.precision.state_dict()
    assert other.hardware.precision.scaler.get_scale() != 2.0**16


# TF32


def products():
    return torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32


@pytest.fixture
def own_flags():
    """As a user may have set them: what torch does by default would tell nothing."""
    before = products()
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    yield products()
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


def with_tf32(strategy):
    """As on a GPU: on this one the flags have no effect."""
    strategy.hardware.precision = Precision("HFC", "float32", torch.device("cuda"), tf32=True)
    return strategy


def test_tf32_is_used_in_all_epochs_and_in_no_evaluation(own_flags):
    met = {}
    events = (
        "before_forward before_update before_phase_iteration after_phase_iteration "
        "before_training_exp after_training_exp before_eval_forward after_training_iteration"
    ).split()
    watches = [
        At(event, lambda _, event=event: met.setdefault(event, set()).add(products()))
        for event in events
    ]
    strategy = with_tf32(
        method_runs.build(
            "foster", plugins=watches, compress_epochs=1, eval_every=1, peval_mode="iteration"
        )
    )
    benchmark = benchmark_of()
    for experience in benchmark.train_stream[:2]:
        strategy.train(experience, eval_streams=[benchmark.test_stream[0]])
    outside = {"before_training_exp", "after_training_exp", "before_eval_forward"}
    assert met == {event: {own_flags if event in outside else ("high", True)} for event in events}
    assert products() == own_flags


def test_an_error_leaves_the_flags_as_they_were(own_flags):
    def fail(strategy):
        assert products() == ("high", True)
        raise KeyError("of a plugin")

    strategy = with_tf32(build(plugins=[At("after_forward", fail)]))
    with pytest.raises(KeyError, match="of a plugin"):
        strategy.train(benchmark_of().train_stream[0])
    assert products() == own_flags


def test_without_tf32_the_flags_are_the_users(own_flags):
    torch.set_float32_matmul_precision("medium")
    met = set()
    build(plugins=[At("before_forward", lambda _: met.add(products()))]).train(
        benchmark_of().train_stream[0]
    )
    assert met == {("medium", False)}


def test_tf32_on_a_cpu_is_refused():
    with pytest.raises(
        ValueError, match="HFCStrategy: tf32=True needs a CUDA GPU, got device 'cpu'"
    ):
        build(tf32=True)


# Compilation


def forget_compiled():
    """As in a new process."""
    torch.compiler.reset()
    compilation.compiled.cache_clear()


COMPILED = """
import sys
import torch
sys.path[:0] = sys.argv[1:]
import method_runs
from strategy_runs import SmallResNet, benchmark_of
from avalanche_hfc.models import ResNet32
from avalanche_hfc.strategies._base import compilation, precision

graphs = []

def counted(graph, inputs):
    graphs.append(graph)
    return graph.forward

compilation.COMPILER = counted

# seven images of a class: the incomplete batches of the steps are of different sizes
benchmark = benchmark_of(per_class=7)
for name, losses, model, options in (
    ("icarl", "hfc", ResNet32(in_channels=1), {}),
    ("icarl", "host", SmallResNet(), {}),
    ("ssil", "hfc", SmallResNet(), {}),
    ("podnet", "hfc", SmallResNet(), {"tune_epochs": 1}),
):
    torch.compiler.reset()
    compilation.compiled.cache_clear()
    strategy = method_runs.build(
        name, model=model, lr=0.01, train_epochs=1, losses=losses, precision="bfloat16",
        channels_last=True, compile=True, **options,
    )
    for step, experience in enumerate(benchmark.train_stream):
        before = len(graphs)
        strategy.train(experience)
        strategy.eval(benchmark.test_stream[: step + 1])
        print(len(graphs) - before)
"""


def test_blocks_are_compiled_once_and_not_for_each_step():
    """The five kinds of a ResNet's blocks, in training, as a teacher, and frozen for tuning. In a
    process of its own: annotations are not enforced there, as in use.
    """
    support = Path(__file__).parents[1] / "support"
    result = subprocess.run(
        [sys.executable, "-c", COMPILED, support], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "recompile_limit" not in result.stderr and "compile failed" not in result.stderr
    counts = [int(line) for line in result.stdout.splitlines()]
    assert counts == [5, 5, 0, 1, 1, 0, 1, 1, 0, 1, 2, 0]


def test_a_block_is_compiled_once_for_batches_of_all_sizes(monkeypatch):
    sizes = []

    def backend(graph, inputs):
        sizes.append([value for value in inputs if isinstance(value, torch.SymInt)])
        return graph.forward

    monkeypatch.setattr(compilation, "COMPILER", backend)
    forget_compiled()
    block = torch.nn.Linear(3, 4)
    with _compiled.compiled_by(compilation.compiled):
        for size in (8, 5, 2, 8):
            x = torch.randn(size, 3)
            assert torch.equal(output(block, x), block(x))
    assert len(sizes) == 1


def fast(**options):
    forget_compiled()
    torch.manual_seed(4)
    forms = dict(precision="bfloat16", channels_last=True, compile=True)
    return method_runs.build("icarl", model=SmallResNet(), losses="hfc", **forms, **options)


@pytest.mark.parametrize(
    "compiler", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]
)
def test_a_step_that_was_stopped_resumes_bit_for_bit_with_all_three_options(monkeypatch, compiler):
    monkeypatch.setattr(compilation, "COMPILER", compiler)
    experiences = benchmark_of(per_class=7).train_stream
    kept = []
    keep = At("after_training_epoch", lambda strategy: kept.append(strategy.state_dict()))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="torch.compile failed")
        unbroken = left_by(train(fast(plugins=[keep]), experiences))
        for state in (kept[2], kept[5]):  # in the second step, in the third
            resumed = fast(plugins=[At("after_training_epoch", lambda strategy: None)])
            resumed.load_state_dict(state)
            train(resumed, experiences[1 if state is kept[2] else 2 :])
            assert differing(unbroken, left_by(resumed)) == []


def test_models_of_others_are_refused_by_name():
    with pytest.raises(ValueError, match="compile=True needs a model of .* got a Sequential"):
        hfc(mlp(), compile=True)


def test_what_torch_cannot_trace_is_reported_and_runs_as_it_is(monkeypatch):
    def refused(function, **options):
        def call(*args):
            raise torch._dynamo.exc.Unsupported("no such thing\nand more")

        return call

    monkeypatch.setattr(torch, "compile", refused)
    forget_compiled()
    doubled = compilation.compiled(lambda values: 2 * values)
    with pytest.warns(UserWarning, match=r"Unsupported: no such thing\)\. The training cont"):
        assert doubled(torch.tensor([3.0])) == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert doubled(torch.tensor([4.0])) == 8  # it is not tried again


def test_nothing_is_compiled_outside_of_the_epochs_of_a_training():
    met = set()
    watched = At(
        ["before_training_epoch", "after_forward", "before_eval_forward"],
        lambda strategy: met.add((strategy.is_training, _compiled._COMPILER.get())),
    )
    strategy = hfc(
        vit(), compile=True, plugins=[watched], train_epochs=1, eval_every=1, peval_mode="iteration"
    )
    benchmark = benchmark_of()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", lambda function, **options: function)
        forget_compiled()
        strategy.train(benchmark.train_stream[0], eval_streams=[benchmark.test_stream[0]])
    forget_compiled()
    assert met == {(True, None), (True, compilation.compiled), (False, None)}


def test_what_cannot_be_compiled_is_reported_and_runs_uncompiled(monkeypatch):
    experiences = benchmark_of().train_stream[:1]

    def backend(graph, inputs):
        raise RuntimeError("no compiler here\nand more")

    monkeypatch.setattr(compilation, "COMPILER", backend)
    forget_compiled()
    with pytest.warns(UserWarning, match=r"RuntimeError: no compiler here\)\. The training cont"):
        compiled = train(build(compile=True), experiences)
    assert differing(left_by(train(build(), experiences)), left_by(compiled)) == []


def with_lazy_backward(compile_backward):
    """A backend that compiles the backward graph when it is first run."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    return aot_autograd(
        fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward),
        bw_compiler=compile_backward,
    )


def without_compiler(graph, inputs):
    raise RuntimeError("no backward here\nand more")


@pytest.mark.parametrize("options", [{}, {"precision": "bfloat16"}], ids=str)
def test_a_backward_pass_that_cannot_be_compiled_is_reported_and_runs_uncompiled(
    monkeypatch, options
):
    def trained(**further):
        return left_by(train(build(train_epochs=1, **options, **further), experiences))

    experiences = benchmark_of().train_stream[:1]
    forget_compiled()
    monkeypatch.setattr(compilation, "COMPILER", with_lazy_backward(without_compiler))
    with pytest.warns(UserWarning, match=r"no backward here\)\. The training continues uncomp"):
        compiled = trained(compile=True)
    assert differing(trained(), compiled) == []


def noisy():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
    )


def trained_once(model, run):
    torch.manual_seed(5)
    run(model, torch.randn(6, 4)).square().sum().backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    return {**model.state_dict(), **gradients, "drawn": torch.randn(3)}


def test_the_trial_of_a_backward_pass_leaves_no_trace(monkeypatch):
    """Gradients, statistics of batch norm and what is drawn are those of one pass."""
    from functorch.compile import make_boxed_func

    graphs = []
    backend = with_lazy_backward(
        lambda graph, inputs: graphs.append(graph) or make_boxed_func(graph.forward)
    )
    monkeypatch.setattr(compilation, "COMPILER", backend)
    forget_compiled()
    expected = trained_once(noisy(), lambda model, x: model(x))
    found = trained_once(noisy(), compilation.compiled(lambda model, x: model(x)))
    assert len(graphs) == 1
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], msg=name)
    assert found["1.num_batches_tracked"] == 1
