"""What all repairs promise, and checkpoints.

A test named `shipped_…` fails when Avalanche mends the defect: then the repair can go.
"""

import importlib.util
import pickle
import sys

import pytest
import torch
from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint
from avalanche.training.plugins import LwFPlugin
from avalanche.training.supervised import DER, ER_ACE, BiC, ICaRL, LwF, Naive
from avalanche.training.supervised.icarl import _ICaRLPlugin
from compat_hosts import accuracy, global_names, network, same, strategy_of, train, weights

from avalanche_hfc import compat

FINETUNING = 1 / 3  # it ends with the two classes of the last of three steps


def test_importing_compat_changes_nothing_in_avalanche():
    before = global_names()
    spec = importlib.util.spec_from_file_location("compat_once_more", compat.__file__)
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    after = global_names()
    assert again.RepairedDER is not compat.RepairedDER
    assert before.keys() == after.keys() and all(after[key] is before[key] for key in before)


@pytest.mark.parametrize("head", ["incremental", "growing"])
@pytest.mark.parametrize(
    "kind", [compat.RepairedICaRL, compat.RepairedDER, compat.RepairedBiC, compat.RepairedER_ACE]
)
def test_a_repaired_host_with_a_growing_head_knows_twice_what_finetuning_knows(
    benchmark, kind, head
):
    strategy = train(strategy_of(kind, network(head), epochs=3), benchmark.train_stream)
    assert accuracy(strategy, benchmark.test_stream) > 2 * FINETUNING


@pytest.mark.parametrize(
    ("repaired", "shipped", "own_plugins"),
    [
        (compat.RepairedICaRL, ICaRL, {_ICaRLPlugin, compat.RepairedICaRLLossPlugin}),
        (compat.RepairedDER, DER, set()),
        (compat.RepairedBiC, BiC, {compat.RepairedBiCPlugin}),
        (compat.RepairedER_ACE, ER_ACE, set()),
        (compat.RepairedLwF, LwF, {compat.RepairedLwFPlugin}),
    ],
)
def test_a_repaired_host_is_the_original_but_for_its_own_plugins_and_leaves_the_callers_list_alone(
    repaired, shipped, own_plugins
):
    mine = LwFPlugin()
    given = [mine]
    strategy = strategy_of(repaired, network(), plugins=given)
    assert isinstance(strategy, shipped) and given == [mine]
    added = {type(plugin) for plugin in strategy.plugins[1:]} - {
        type(plugin) for plugin in strategy_of(Naive, network()).plugins
    }
    assert strategy.plugins[0] is mine and added == own_plugins


@pytest.mark.parametrize(
    ("shipped", "repaired", "head"),
    [
        (ICaRL, compat.RepairedICaRL, "fixed"),
        (DER, compat.RepairedDER, "fixed"),
        (LwF, compat.RepairedLwF, "incremental"),
    ],
    ids=["icarl", "der", "lwf"],
)
def test_where_the_shipped_host_is_sound_the_repair_gives_its_weights_bitwise(
    benchmark, shipped, repaired, head
):
    first, second = (
        train(strategy_of(kind, network(head)), benchmark.train_stream)
        for kind in (shipped, repaired)
    )
    assert same(weights(first), weights(second))


def test_shipped_save_checkpoint_cannot_pickle_the_optimizer(benchmark, tmp_path):
    strategy = train(strategy_of(Naive, network()), benchmark.train_stream[:1])
    with pytest.raises(pickle.PicklingError, match="sentinel"):
        save_checkpoint(strategy, tmp_path / "checkpoint")


def test_a_checkpoint_saved_under_the_repair_resumes_bitwise(benchmark, tmp_path):
    whole = train(strategy_of(Naive, network()), benchmark.train_stream)
    stopped = train(strategy_of(Naive, network()), benchmark.train_stream[:1])
    with compat.checkpoint_repair():
        save_checkpoint(stopped, tmp_path / "checkpoint")
    fresh = strategy_of(Naive, network(seed=5))
    resumed, next_step = maybe_load_checkpoint(fresh, tmp_path / "checkpoint")
    assert next_step == 1
    for experience in benchmark.train_stream[next_step:]:
        resumed.train(experience)
    assert same(weights(whole), weights(resumed)) and not same(weights(whole), weights(stopped))


def test_checkpoint_repair_takes_its_attributes_away_again_also_after_an_error():
    assert not hasattr(torch.optim, "sgd")
    with pytest.raises(OSError, match="full"), compat.checkpoint_repair():
        assert torch.optim.sgd is sys.modules["torch.optim.sgd"]
        raise OSError("disk full")
    assert not hasattr(torch.optim, "sgd") and hasattr(torch.optim, "lr_scheduler")
