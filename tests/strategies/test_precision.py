"""Precision of the forward pass, scaled gradients, compilation: what changes, and what does not."""

import pytest
import torch
from strategy_runs import benchmark_of, differing, hfc, left_by, train, vit

from avalanche_hfc.strategies._base import compilation
from avalanche_hfc.strategies._base.precision import Precision


def build(**options):
    torch.manual_seed(1)
    return hfc(vit(), **options)


def trained(num_steps=2, scaler=None, **options):
    strategy = build(**options)
    strategy.precision.scaler = scaler
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


def test_bfloat16_trains_something_near_float32(float32):
    half = left_by(trained(precision="bfloat16"))
    apart = max(
        float((half[name] - float32[name]).abs().max()) for name in half if "weight" in name
    )
    assert 1e-5 < apart < 0.1


@pytest.mark.parametrize("event", ["after_training_epoch", None])
def test_bfloat16_resumes_bit_for_bit(event):
    experiences = benchmark_of().train_stream[:2]
    expected = left_by(trained(precision="bfloat16"))
    kept = []
    strategy = build(precision="bfloat16")
    strategy.train(experiences[0])
    if event is None:
        kept.append(strategy.state_dict())
    else:
        setattr(
            strategy.plugins[0], event, lambda strategy, **_: kept.append(strategy.state_dict())
        )
        strategy.train(experiences[1])
    resumed = build(precision="bfloat16")
    resumed.load_state_dict(kept[0])
    resumed.train(experiences[1])
    assert differing(expected, left_by(resumed)) == []


@pytest.mark.filterwarnings("ignore:torch.cuda.amp.GradScaler is enabled")  # without a GPU
def test_float16_on_a_cpu_is_refused():
    with pytest.raises(ValueError, match="HFCStrategy: precision 'float16' needs a GPU"):
        build(precision="float16")
    assert Precision("HFC", "float16", torch.device("cuda")).scaler is not None
    assert Precision("HFC", "bfloat16", torch.device("cuda")).scaler is None


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
    strategy.precision.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    seen = []
    strategy.plugins[0].before_update = lambda strategy, **_: seen.append(
        [p.grad is None for p in strategy.model.parameters()]
    )
    before = {
        name: p.clone() for name, p in strategy.model.named_parameters() if "head" not in name
    }
    strategy.train(benchmark_of().train_stream[0])
    after = dict(strategy.model.named_parameters())
    assert all(map(all, seen)) and strategy.precision.scaler.get_scale() < 2.0**127
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_scale_is_part_of_the_state():
    strategy = trained(1, scaler=torch.amp.GradScaler("cpu", init_scale=2.0**9, growth_interval=2))
    other = build()
    other.precision.scaler = torch.amp.GradScaler("cpu")
    other.load_state_dict(strategy.state_dict())
    assert other.precision.state_dict() == strategy.precision.state_dict()
    assert other.precision.scaler.get_scale() != 2.0**16


# Compilation


def test_a_compiled_model_trains_the_same(monkeypatch, float32):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(compilation, "COMPILER", backend)
    torch.compiler.reset()
    assert differing(float32, left_by(trained(compile=True))) == [] and graphs


def test_what_cannot_be_compiled_is_reported_and_runs_uncompiled(monkeypatch, float32):
    def backend(graph, inputs):
        raise RuntimeError("no compiler here\nand more")

    monkeypatch.setattr(compilation, "COMPILER", backend)
    torch.compiler.reset()
    with pytest.warns(UserWarning, match=r"RuntimeError: no compiler here\)\. The training cont"):
        strategy = trained(compile=True)
    assert differing(float32, left_by(strategy)) == []
