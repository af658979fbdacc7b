"""A training that diverges in its last update, where no loss tells it any more; and a state that is
loaded into another training.
"""

import math

import pytest
import tiny_runs
import torch
from strategy_runs import At
from tiny_runs import TinyRecipe, tiny_run

from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.metrics import evaluate


def diverging(recipe, seed, **options):
    """The weights are NaN after the last epoch of step 1."""

    def ruin(strategy):
        if strategy.clock.train_exp_counter == 1 and strategy.clock.train_exp_epochs == 1:
            with torch.no_grad():
                for parameter in strategy.model.parameters():
                    parameter.fill_(math.nan)

    plugins = [*options["plugins"], At("after_training_epoch", ruin)]
    return tiny_runs.build(recipe, seed, **{**options, "plugins": plugins})


@pytest.mark.parametrize(
    ("method", "said"),
    [("hfc", "The features of the images"), ("avalanche-naive", "the logits of 24 of 24 images")],
)
def test_the_step_and_epoch_are_named_and_the_run_is_not_finished(tmp_path, method, said):
    where = r"step 1, epoch 1 \(counted from 0\): training has diverged"
    with pytest.raises(FloatingPointError, match=f"{said} are not finite.*{where}"):
        tiny_run(tmp_path, method, build=diverging)
    assert not RunFolder(tmp_path).finished and len(RunFolder(tmp_path).read("steps")) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_evaluate_counts_the_images_whose_logits_are_not_finite(value):
    images = torch.eye(3)
    images[1, 0] = value
    data = torch.utils.data.TensorDataset(images, torch.tensor([0, 1, 2]))
    with pytest.raises(FloatingPointError, match="logits of 1 of 3 images"):
        evaluate(torch.nn.Identity(), data, torch.tensor([0, 0, 0]))
    images[1, 0] = -math.inf  # a class that is out of the question
    assert evaluate(torch.nn.Identity(), data, torch.tensor([0, 0, 0])).total.sum() == 3


def state_after_a_step():
    built = tiny_runs.build(TinyRecipe(), 0)
    built.strategy.train(built.benchmark.train_stream[0])
    return built.strategy.state_dict()


def test_a_state_of_another_rate_batch_size_or_number_of_epochs_is_refused():
    state = state_after_a_step()
    other = tiny_runs.build(TinyRecipe(lr=1e-2), 0).strategy
    with pytest.raises(ValueError, match=r"learning rate 0\.003, now 0\.01"):
        other.load_state_dict(state)
    other = tiny_runs.build(TinyRecipe(), 0).strategy
    other.train_mb_size = 4
    with pytest.raises(ValueError, match="train_mb_size 8, now 4"):
        other.load_state_dict(state)
    longer = tiny_runs.build(TinyRecipe(epochs=5), 0).strategy
    longer.load_state_dict(state)  # between steps
    with pytest.raises(ValueError, match="train_epochs 2, now 5"):
        longer.load_state_dict({**state, "turn": ["after_training_epoch", 1]})
    state.pop("training")  # of an earlier version
    other.load_state_dict(state)
