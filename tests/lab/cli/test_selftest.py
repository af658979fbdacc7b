"""`hfc selftest` passes here, and notices what is wrong."""

import pytest
from click.testing import CliRunner

from avalanche_hfc.lab import selftest
from avalanche_hfc.lab.cli.look import selftest as command
from avalanche_hfc.lab.selftest import Failed, checks

pytestmark = pytest.mark.quick


def test_every_check_holds_and_the_command_says_so():
    result = CliRunner().invoke(command)
    assert result.exit_code == 0, result.output
    assert (
        result.output.count("ok  ") == len(list(checks())) == 11 and "FAILED" not in result.output
    )


BREAKS = {
    "L_FC is Eq. 9": ("forgetting_compensation", lambda *a: selftest.torch.tensor(1.1226)),
    "L_RD is Eq. 13": ("relation_distillation", lambda *a, **k: selftest.torch.tensor(0.4941)),
    "golden value of released loss": ("official_hfc", lambda *a: selftest.torch.tensor(1.0115)),
    "class order cifar100-a": ("class_order", lambda name: tuple(range(100))),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_check_fails_where_its_part_is_wrong(name, monkeypatch):
    monkeypatch.setattr(selftest, *BREAKS[name])
    check = next(check for own, check in checks() if own.startswith(name))
    with pytest.raises(Failed):
        check()


def test_a_resume_that_forgets_something_is_noticed(monkeypatch):
    def forgetful(strategy, state):
        load(strategy, {**state, "optimizer": strategy.optimizer.state_dict() | {"state": {}}})

    kind = selftest.STRATEGIES["hfc"]
    load = kind.load_state_dict
    monkeypatch.setattr(kind, "load_state_dict", forgetful)
    with pytest.raises(Failed, match="parameters differ|not stopped"):
        selftest.resumes("hfc", "after_training_epoch")
