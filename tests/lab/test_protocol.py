"""What a run asks of a strategy: every one of ours answers, natively or through the adapter, and a
class of the user's is heard where it says something itself."""

import pytest
import torch
from avalanche.training.templates import SupervisedTemplate
from tiny_runs import TinyRecipe, build
from torch.nn import CrossEntropyLoss, Linear, Sequential
from torch.optim import SGD

from avalanche_hfc.lab.build import AdaptedStrategy, runnable
from avalanche_hfc.strategies import STRATEGIES, IncrementalTemplate


def host(kind=SupervisedTemplate, **options):
    model = Linear(3, 2)
    return kind(
        model=model,
        optimizer=SGD(model.parameters(), lr=0.1),
        criterion=CrossEntropyLoss(),
        evaluator=None,
        **options,
    )


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_of_ours_answers_itself_and_avalanches_through_the_adapter(name):
    strategy = build(TinyRecipe(name, epochs=1), 0).strategy
    ours = isinstance(strategy, IncrementalTemplate)
    asked = runnable(strategy)
    assert (asked is strategy) == ours == asked.resumable
    assert isinstance(asked, AdaptedStrategy) != ours
    assert asked.trains_on_stream == (name == "avalanche-joint")
    assert asked.inference == ("nme" if name == "icarl" else "head")
    assert (asked.epoch_losses() is None) == (not ours)
    assert asked.model is strategy.model and asked.device == strategy.device
    assert asked.exemplars() == {} and asked.nearest_scores(torch.zeros(1, 1, 8, 8)) is None


def test_a_bare_template_predicts_by_its_model_and_has_no_state():
    asked = runnable(host())
    assert asked.predictor is asked.model and asked.class_means() is None
    assert not asked.resumable and not asked.trains_on_stream


class Own(SupervisedTemplate):
    """A user's class that says everything itself."""

    trains_on_stream = True
    inference = "nme"
    predictor = property(lambda self: Sequential(self.model))

    def class_means(self):
        return {0: torch.ones(3)}

    def nearest_scores(self, x):
        return -x

    def epoch_losses(self):
        return {"mine": 1.0}

    def exemplars(self):
        return {0: torch.tensor([4, 2])}

    def state_dict(self):
        return {"kept": 7}

    def load_state_dict(self, state):
        self.kept = state["kept"]


def test_what_a_users_class_says_itself_is_heard():
    strategy = host(Own)
    asked = runnable(strategy)
    assert asked.trains_on_stream and asked.inference == "nme" and asked.resumable
    assert isinstance(asked.predictor, Sequential) and list(asked.class_means()) == [0]
    assert asked.nearest_scores(torch.ones(1)).item() == -1
    assert asked.epoch_losses() == {"mine": 1.0} and asked.exemplars()[0].tolist() == [4, 2]
    asked.load_state_dict(asked.state_dict())
    assert strategy.kept == 7
