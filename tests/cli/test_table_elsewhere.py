"""A table on Ray, and as commands for other schedulers."""

import os
import shlex
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from image_folders import hfc

from avalanche_hfc.store.run_folder import TIMES
from avalanche_hfc.tasks import cluster

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
    code = "import sys; sys.argv[0] = 'hfc'; from avalanche_hfc.cli import main; main()"
    arguments = [*TABLE, "--out", str(tmp_path / "ray"), "--on", "ray", "--jobs", "2"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True
    )
    killed = None
    while process.poll() is None and killed is None:
        killed = lock_of_a_run_under_way(tmp_path / "ray")
        time.sleep(0.02)
    assert killed is not None, process.stderr.read()
    os.kill(killed, signal.SIGKILL)
    _, said = process.communicate(timeout=300)
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
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: None)
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
    cluster.check_nodes(OneNode, out, [tmp_path])
    with pytest.raises(ValueError, match=r"does not see .*images\.npz\. All nodes must share"):
        cluster.check_nodes(OneNode, out, [tmp_path / "images.npz"])
    monkeypatch.setattr(
        cluster,
        "look_from_node",
        lambda paths: cluster.Node("n7", cluster.versions(), tuple(paths)),
    )
    with pytest.raises(ValueError, match=rf"Node n7 does not see {out}\. All nodes must share"):
        cluster.check_nodes(OneNode, out)
    other = cluster.Node("n7", "avalanche_hfc 0.0.1", ())
    monkeypatch.setattr(cluster, "look_from_node", lambda paths: other)
    with pytest.raises(ValueError, match="Node n7 has avalanche_hfc 0.0.1; here is avalanche_hfc"):
        cluster.check_nodes(OneNode, out)
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


@pytest.mark.parametrize(
    ("gpus", "asked", "expected"),
    [(2, "auto", "cuda"), (0, "auto", "cpu"), (2, "cuda", "cuda"), (2, "cpu", "cpu")],
)
def test_the_device_follows_from_the_cluster(gpus, asked, expected):
    assert cluster.device_on(Resources(gpus), asked) == expected


def test_a_gpu_that_no_node_has_is_refused():
    with pytest.raises(ValueError, match="--device cuda: no node of the Ray cluster has a GPU"):
        cluster.device_on(Resources(0), "cuda")


class Resources:
    def __init__(self, gpus):
        self.gpus = gpus

    def cluster_resources(self):
        return {"CPU": 4.0, "GPU": float(self.gpus)} if self.gpus else {"CPU": 4.0}
