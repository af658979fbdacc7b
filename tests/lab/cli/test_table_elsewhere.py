"""A table on Ray, and as commands for other schedulers."""

import os
import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager

import pandas as pd
import pytest
from image_folders import hfc
from waiting import PATIENCE, wait_for

from avalanche_hfc.lab import jobs, recipe
from avalanche_hfc.lab.cli.tables import reason, steps_done
from avalanche_hfc.lab.run_folder import TIMES, RunFolder
from avalanche_hfc.lab.table import TableRun

ROWS = ("--only", "hfc", "--only", "herding-replay")
TABLE = ("table", "demo", *ROWS, "--epochs", "2")


def rows_of(out):
    """Every row of the runs, without times and memory."""
    found = {}
    for path in sorted(out.glob("*/*/*.csv")):
        rows = pd.read_csv(path)
        found[str(path.relative_to(out))] = rows.drop(columns=TIMES & set(rows))
    return found


def lock_of_a_run_under_way(out):
    """The process that trains a run which has finished a step, and has more to do."""
    for path in out.glob("*/*/lock"):
        steps, pid = path.with_name("steps.csv"), path.read_text().strip()
        if pid and steps.exists() and 1 <= len(steps.read_text().splitlines()) - 1 < 4:
            return int(pid)
    return None


@pytest.mark.kill
def test_a_table_on_ray_whose_worker_is_killed_ends_with_the_rows_of_an_unbroken_one(tmp_path):
    pytest.importorskip("ray")
    hfc(*TABLE, "--out", tmp_path / "here")
    code = "import sys; sys.argv[0] = 'hfc'; from avalanche_hfc.lab.cli import main; main()"
    arguments = [*TABLE, "--out", str(tmp_path / "ray"), "--on", "ray", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True
    )
    os.kill(wait_for(lambda: lock_of_a_run_under_way(tmp_path / "ray"), process), signal.SIGKILL)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    expected, found = rows_of(tmp_path / "here"), rows_of(tmp_path / "ray")
    assert list(found) == list(expected) and len(expected) >= 8
    for name, rows in expected.items():
        pd.testing.assert_frame_equal(found[name], rows, obj=name)
    logs = [path.read_text() for path in (tmp_path / "ray").glob("*/*/log.txt")]
    assert any("resume" in log for log in logs)


def test_without_ray_or_a_cluster_nothing_is_written(tmp_path, monkeypatch):
    out = ("--out", tmp_path / "runs", "--on", "ray")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ValueError, match="cluster RAY_ADDRESS=127.0.0.1:1 cannot be reached"):
        hfc(*TABLE, *out)
    monkeypatch.setattr(jobs.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match=r"Ray is not installed: pip install 'avalanche_hfc\[ray\]'"
    ):
        hfc(*TABLE, *out)
    assert not (tmp_path / "runs").exists()


class OneNode:
    """Stands for Ray: calls the function here, as the node that it was sent to."""

    @staticmethod
    def nodes():
        return [{"NodeID": "a" * 56, "Alive": True}, {"NodeID": "b" * 56, "Alive": False}]

    @staticmethod
    def remote(**options):
        return OneNode.Task

    class Task:
        def __init__(self, function):
            self.remote = function

        def options(self, **options):
            return self

    @staticmethod
    def get(results):
        return results


def test_nodes_that_do_not_share_the_storage_or_the_versions_are_refused(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    out = tmp_path / "deep" / "runs"
    jobs.check_nodes(OneNode, out, [tmp_path])
    with pytest.raises(ValueError, match=r"does not see .*images\.npz\. All nodes must share"):
        jobs.check_nodes(OneNode, out, [tmp_path / "images.npz"])
    monkeypatch.setattr(
        jobs,
        "look_from_node",
        lambda paths: ("n7", "the same", list(paths)),
    )
    with pytest.raises(ValueError, match=rf"Node n7 does not see {out}\. All nodes must share"):
        jobs.check_nodes(OneNode, out)
    looked = iter(["avalanche_hfc 0.2.0", "avalanche_hfc 0.0.1"])  # here, then on the node
    monkeypatch.setattr(jobs, "look_from_node", lambda paths: ("n7", next(looked), []))
    with pytest.raises(ValueError, match="Node n7 has avalanche_hfc 0.0.1; here is avalanche_hfc"):
        jobs.check_nodes(OneNode, out)
    assert list(tmp_path.iterdir()) == []


def test_commands_are_those_of_the_runs_that_are_missing(tmp_path):
    out = tmp_path / "my runs"
    asked = (*TABLE, "--seeds", "2", "--out", out, "--commands")
    lines = hfc(*asked).splitlines()
    assert len(lines) == 4 and not out.exists()
    command, *words = shlex.split(lines[0])
    assert command == "hfc"
    hfc(*words)
    assert hfc(*asked).splitlines() == lines[1:]
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    hfc(*words)  # a line may be repeated
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before


class Nodes:
    def __init__(self, *nodes):
        self.all = nodes

    def nodes(self):
        return [{"Resources": node, "Alive": bool(node)} for node in self.all]


@pytest.mark.parametrize(
    ("nodes", "device", "asked", "expected"),
    [
        ([{"CPU": 8.0}], "cpu", None, 0),
        ([{"CPU": 8.0}], "cpu", 3, 3),
        ([{"CPU": 8.0, "GPU": 2.0}], "cuda", None, 3),  # four cores for each GPU: a run and three
        ([{"CPU": 8.0, "GPU": 2.0}, {"CPU": 4.0, "GPU": 2.0}, {}], "cuda", None, 1),
        ([{"CPU": 64.0, "GPU": 1.0}, {"CPU": 2.0}], "cuda", None, 8),
        ([{"CPU": 2.0, "GPU": 4.0}], "cuda", None, 0),
        ([{"CPU": 8.0, "GPU": 2.0}], "cuda", 7, 7),
    ],
)
def test_a_run_and_its_loader_processes_share_the_cores_of_a_node(nodes, device, asked, expected):
    assert jobs.workers_on(Nodes(*nodes), device, asked) == expected


def test_more_loader_processes_than_a_node_has_cores_for_are_refused():
    nodes = Nodes({"CPU": 4.0, "GPU": 1.0}, {"CPU": 16.0})
    with pytest.raises(ValueError, match=r"need 5 cores of a node.* at most 4\. Use --workers 3\."):
        jobs.workers_on(nodes, "cuda", 4)


@pytest.mark.parametrize(("given", "expected"), [((), 0), (("--workers", "3"), 3)])
def test_the_table_trains_with_the_loader_processes_that_it_reserves(
    tmp_path, monkeypatch, given, expected
):
    met = {}

    @contextmanager
    def started(**options):
        met["cluster"] = options
        ray = Nodes({"CPU": 8.0})
        ray.cluster_resources = lambda: {"CPU": 8.0}
        yield ray

    def outcomes(ray, work, runs, **options):
        met["task"], met["work"] = options, work.keywords
        yield from ()

    monkeypatch.setattr(jobs, "cluster", started)
    monkeypatch.setattr(jobs, "check_nodes", lambda *_: None)
    monkeypatch.setattr(jobs, "ray_outcomes", outcomes)
    with pytest.raises(ValueError, match="No finished run"):
        hfc(*TABLE, "--out", tmp_path, "--on", "ray", "--jobs", "2", *given)
    assert met["cluster"] == {"runs": 2, "workers": expected}
    assert met["task"]["cpus"] == 1 + expected and met["work"]["num_workers"] == expected


def test_a_task_waits_for_a_folder_that_is_in_use(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run")
    lock = ExitStack()
    lock.enter_context(folder.owned())
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        if len(waited) == 3:
            lock.close()

    def work(path):
        with RunFolder(path).owned():
            return "trained"

    monkeypatch.setattr(jobs.time, "sleep", sleep)
    assert jobs.work_on_node(work, folder.path) == (folder.path, "trained", None)
    assert waited == [jobs.LOCK_POLL_SECONDS] * 3
    monkeypatch.setattr(jobs, "LOCK_SECONDS", 0.0)
    with folder.owned():
        error = jobs.work_on_node(work, folder.path).error
    assert reason(error).startswith(f"{folder.path} is in use by process {os.getpid()}")


def test_steps_are_counted_while_files_are_written(tmp_path):
    runs = [TableRun(recipe("digits-b0-t5-hfc@demo"), k, tmp_path / str(k)) for k in range(4)]
    for run in runs[:3]:
        run.folder.mkdir()
        (run.folder / "steps.csv").write_text("step,accuracy\n0,0.5\n")
    (runs[1].folder / "steps.csv").write_text("step,accuracy\n0\n")  # a ValueError
    (runs[2].folder / "steps.csv").unlink()
    (runs[2].folder / "steps.csv").mkdir()  # an OSError
    assert steps_done(runs) == "1 steps done"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("Traceback\nValueError: too small", "too small"),
        ("Traceback\nValueError", "ValueError"),
        ("Traceback\nKeyError: 'a'", "Traceback\nKeyError: 'a'"),
    ],
)
def test_the_reason_of_a_failure_is_never_empty(error, said):
    assert reason(error) == said
