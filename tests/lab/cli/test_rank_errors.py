"""Who reports an error of several ranks, and what the launcher makes of their exit codes."""

import os
import sys

import click
import pytest
import torch.distributed.launcher.api as api
from torch.distributed import DistNetworkError
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from avalanche_hfc.lab import ranks as engine_ranks
from avalanche_hfc.lab import recipe
from avalanche_hfc.lab.cli import main, ranks
from avalanche_hfc.lab.cli.ranks import LOST, launch
from avalanche_hfc.lab.cli.train import moved_before
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.table import TableRun


@pytest.fixture
def slept(monkeypatch):
    """The seconds that a rank has waited."""
    seconds = []
    monkeypatch.setattr(ranks.time, "sleep", seconds.append)
    return seconds


def ended(monkeypatch, capsys, rank, error):
    """The exit code of a rank that meets an error, and what it says."""

    def fail(*words, **options):
        raise error

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setattr(sys.modules["avalanche_hfc.lab.cli"], "commands", fail)
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code, capsys.readouterr().err


BAD_IMAGE = ValueError("Cannot read image b.png")


def test_rank_0_tells_an_error_at_once(monkeypatch, capsys, slept):
    code, said = ended(monkeypatch, capsys, 0, BAD_IMAGE)
    assert (code, said, slept) == (2, "hfc: Cannot read image b.png\n", [])


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (BAD_IMAGE, 2, "hfc: rank 1: Cannot read image b.png"),
        (KeyError("x"), 1, "hfc: rank 1: unexpected error, KeyError: 'x'"),
        (click.UsageError("No such thing."), 2, "Error: No such thing."),
    ],
)
def test_another_rank_waits_for_rank_0_and_then_tells_its_own(
    monkeypatch, capsys, slept, error, code, words
):
    found, said = ended(monkeypatch, capsys, 1, error)
    assert found == code and said.startswith(words) and slept == [ranks.GRACE]


def test_a_rank_that_has_lost_another_one_lets_it_end_and_says_nothing(monkeypatch, capsys, slept):
    lost = RuntimeError("[/pytorch/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer")
    assert ended(monkeypatch, capsys, 0, lost) == (LOST, "")
    assert slept == [ranks.GRACE]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[gloo/transport/tcp/device.cc:84] Unable to find address for: no0\nmore"),
        DistNetworkError("Unable to find address for: no0"),
    ],
)
@pytest.mark.parametrize("part", ["rendezvous", "init_process_group"])
def test_ranks_that_do_not_reach_each_other_are_no_lost_ranks(
    monkeypatch, capsys, slept, part, error
):
    def fail(*words, **options):
        raise error

    monkeypatch.setattr(engine_ranks.dist, "rendezvous", lambda *_, **__: iter([(None, 0, 2)]))
    monkeypatch.setattr(engine_ranks.dist, "PrefixStore", lambda *_: None)
    monkeypatch.setattr(engine_ranks.dist, part, fail)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError) as refused:
        engine_ranks.join("cpu")
    code, said = ended(monkeypatch, capsys, 0, refused.value)
    assert code == 2 and slept == []
    assert said.startswith("hfc: The ranks cannot connect: ")
    assert said.endswith("Unable to find address for: no0\n") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "count", "held", "before"),
    [
        ("job", "0", "job", False),  # an earlier launch of this name
        ("job", "1", "job", True),
        ("job", "1", None, False),  # ended before it had moved the old run
        ("job", "1", "other", False),
        ("none", "1", f"process {os.getppid()}", True),
        ("none", "1", "process 1", os.getppid() == 1),
    ],
)
def test_a_restart_moves_old_runs_aside_unless_that_was_done(
    monkeypatch, tmp_path, name, count, held, before
):
    for variable, value in {
        "WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": name,
        "TORCHELASTIC_RESTART_COUNT": count,
    }.items():
        monkeypatch.setenv(variable, value)
    chosen = recipe("digits-b0-t5-hfc@demo")
    runs = [TableRun(chosen, seed, tmp_path / str(seed)) for seed in (0, 1)]
    runs[0].folder.mkdir()
    note = {} if held is None else {"launch": held}
    RunFolder(runs[0].folder).begin(chosen.as_dict(), 0, "a machine", **note)
    assert moved_before(runs) == before


@pytest.mark.parametrize(
    ("codes", "code", "words"),
    [
        ({0: 2, 1: -15}, 2, ""),  # rank 0 has told what all met
        ({1: 1, 0: 2}, 2, ""),  # the code of the lower rank
        ({0: LOST, 1: 2}, 2, ""),  # rank 1 has told what it alone met
        ({0: LOST, 1: -9}, 1, "rank 1 of 2 was killed by SIGKILL"),
        ({0: LOST, 1: 7}, 1, "rank 1 of 2 ended with code 7"),
        ({0: -15, 1: 7}, 1, "rank 1 of 2 ended with code 7"),
        ({0: -9, 1: LOST}, 1, "rank 0 of 2 was killed by SIGKILL"),
        ({1: -15, 0: LOST}, 1, "rank 1 of 2 was killed by SIGTERM"),
    ],
)
def test_a_rank_that_has_not_told_why_it_ended_is_named(monkeypatch, capsys, codes, code, words):
    def elastic_launch(config, program):
        def run(*arguments):
            failures = {}
            for order, (rank, exitcode) in enumerate(codes.items()):
                failures[rank] = ProcessFailure(rank, 100 + rank, exitcode, "")
                failures[rank].timestamp = order
            raise ChildFailedError("hfc", failures)

        return run

    monkeypatch.setattr(api, "elastic_launch", elastic_launch)
    with pytest.raises(SystemExit) as stop:
        launch(2, "cpu")
    said = capsys.readouterr().err
    assert stop.value.code == code
    if words:
        (line,) = said.splitlines()
        assert line.startswith(f"hfc: {words}, and the others with it.")
    else:
        assert said == ""
