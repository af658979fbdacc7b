"""A training that diverges in its last update, where no loss tells it any more; and a state that is
loaded into another training.
"""

import math

import pytest
import tiny_runs
import torch
from strategy_runs import At
from tiny_runs import tiny_run

from avalanche_hfc.lab.run_folder import RunFolder


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
