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
from strategy_runs import At, benchmark_of, differing, hfc, left_by, mlp, run, train, vit

from avalanche_hfc import _compiled
from avalanche_hfc.strategies._base import compilation
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


COMPILED = """
import sys, warnings
sys.path[:0] = sys.argv[3:]
import torch
from strategy_runs import data_of, hfc, mlp, nc_benchmark, train
from avalanche_hfc import _compiled
from avalanche_hfc.strategies._base import compilation

backend, STEPS = sys.argv[1], int(sys.argv[2])
graphs = []

def counted(graph, inputs):
    graphs.append([node.target for node in graph.graph.nodes if node.op != "placeholder"])
    return torch._dynamo.lookup_backend(backend)(graph, inputs)

def run(**options):
    torch.manual_seed(0)
    labels = torch.arange(2 * STEPS).repeat(8)
    data = data_of(torch.randn(len(labels), 64), labels)
    benchmark = nc_benchmark(
        data, data, n_experiences=STEPS, task_labels=False, shuffle=False,
        fixed_class_order=list(range(2 * STEPS)),
    )
    strategy = hfc(mlp("growing"), train_mb_size=16, train_epochs=1, mem_size=20, **options)
    for step, experience in enumerate(benchmark.train_stream):
        before = len(graphs)
        strategy.train(experience)
        strategy.eval(benchmark.test_stream[step])
        new = graphs[before:]
        of_model = [nodes for nodes in new if any("linear" in str(node) for node in nodes)]
        of_losses = [nodes for nodes in new if any("logsumexp" in str(node) for node in nodes)]
        print(len(of_model), len(of_losses))
    return strategy.model.state_dict()

plain = run()
compilation.COMPILER = counted
warnings.filterwarnings("error", message="torch.compile failed")
compiled = run(compile=True)
for name in plain:
    torch.testing.assert_close(compiled[name], plain[name], rtol=1e-4, atol=1e-5)
"""


@pytest.mark.parametrize(
    ("backend", "steps"), [("eager", 10), pytest.param("inductor", 2, marks=pytest.mark.slow)]
)
def test_model_and_losses_are_compiled_in_each_step(backend, steps):
    """In a process of its own: annotations are not enforced there, as in use."""
    support = Path(__file__).parents[1] / "support"
    result = subprocess.run(
        [sys.executable, "-c", COMPILED, backend, str(steps), support],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "recompile_limit" not in result.stderr
    lines = result.stdout.splitlines()
    plain, compiled = lines[:steps], lines[steps:]
    assert plain == ["0 0"] * steps and len(compiled) == steps
    of_model, of_losses = zip(*(map(int, line.split()) for line in compiled), strict=True)
    assert all(of_model) and of_losses[0] == 0 and all(of_losses[1:])


def test_a_loss_that_torch_cannot_trace_is_reported_and_runs_as_it_is(monkeypatch):
    def refused(function, **options):
        def call(*args):
            raise torch._dynamo.exc.Unsupported("no such thing\nand more")

        return call

    monkeypatch.setattr(torch, "compile", refused)
    compilation.compiled_loss.cache_clear()
    loss = compilation.compiled_loss(lambda values: 2 * values)
    with pytest.warns(UserWarning, match=r"Unsupported: no such thing\)\. The training cont"):
        assert loss(torch.tensor(3.0)) == 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loss(torch.tensor(4.0)) == 8  # it is not tried again
    compilation.compiled_loss.cache_clear()


def test_losses_outside_of_a_training_are_not_compiled(monkeypatch):
    met = set()
    watched = At(
        ["before_training_epoch", "after_forward", "before_eval_forward"],
        lambda strategy: met.add((strategy.is_training, _compiled._COMPILER.get())),
    )
    monkeypatch.setattr(compilation, "COMPILER", "eager")
    strategy = hfc(mlp(), compile=True, plugins=[watched], train_epochs=1)
    strategy.train(benchmark_of().train_stream[0])
    strategy.eval(benchmark_of().test_stream[0])
    assert met == {(True, None), (True, compilation.compiled_loss), (False, None)}


def test_what_cannot_be_compiled_is_reported_and_runs_uncompiled(monkeypatch):
    experiences = benchmark_of().train_stream[:1]

    def backend(graph, inputs):
        raise RuntimeError("no compiler here\nand more")

    monkeypatch.setattr(compilation, "COMPILER", backend)
    with pytest.warns(UserWarning, match=r"RuntimeError: no compiler here\)\. The training cont"):
        compiled = run(compile=True, experiences=experiences)
    assert differing(left_by(run(experiences=experiences)), left_by(compiled)) == []


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


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"precision": "bfloat16"}], ids=str)
def test_a_backward_pass_that_cannot_be_compiled_is_reported_and_runs_uncompiled(
    monkeypatch, options
):
    def trained(**further):
        torch.manual_seed(1)
        strategy = hfc(mlp(), train_epochs=1, **options, **further)
        return left_by(train(strategy, benchmark_of().train_stream[:1]))

    monkeypatch.setattr(compilation, "COMPILER", with_lazy_backward(without_compiler))
    with pytest.warns(UserWarning, match=r"no backward here\)\. The training continues uncomp"):
        compiled = trained(compile=True)
    assert differing(trained(), compiled) == []


def test_a_model_that_torch_cannot_trace_is_reported_and_runs_as_it_is(monkeypatch):
    def refused(*args, **kwargs):
        raise torch._dynamo.exc.InternalTorchDynamoError("no such thing\nand more")

    monkeypatch.setattr(torch, "compile", lambda function, **options: refused)
    model = torch.nn.Linear(2, 3)
    compilation.compile_model(model)
    x = torch.randn(4, 2)
    with pytest.warns(UserWarning, match=r"no such thing\)\. The training continues uncompiled"):
        found = model(x)
    assert torch.equal(found, torch.nn.functional.linear(x, model.weight, model.bias))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(x)  # it is not tried again


def noisy():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2)
    )


def trained_once(model):
    torch.manual_seed(5)
    model(torch.randn(6, 4)).square().sum().backward()
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
    plain, compiled = noisy(), noisy()
    compilation.compile_model(compiled)
    expected, found = trained_once(plain), trained_once(compiled)
    assert len(graphs) == 1
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], msg=name)
    assert found["1.num_batches_tracked"] == 1
