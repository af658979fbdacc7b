"""What `hfc table` looks for once, before its first run."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from image_folders import hfc

from avalanche_hfc.lab import checkpoint, jobs
from avalanche_hfc.lab.table import cells_of, runs_of


@pytest.fixture
def nothing_runs(monkeypatch):
    def refused(*args, **kwargs):
        raise AssertionError("a run")

    monkeypatch.setattr("avalanche_hfc.lab.jobs.outcomes", refused)


def test_device_data_and_disk_are_refused_once_before_the_first_run(
    tmp_path, monkeypatch, nothing_runs
):
    small = ("--scale", "small", "--only", "hfc", "--out", tmp_path / "runs")
    with pytest.raises(ValueError, match="No device 'tpu7' here"):
        hfc("table", "cifar100", *small, "--device", "tpu7")
    with pytest.raises(FileNotFoundError, match="CIFAR-100 is not on disk"):
        hfc("table", "cifar100", *small, "--data", tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda path: FullDisk)
    with pytest.raises(OSError, match="checkpoints of all runs need about .* 0.0 GB are free"):
        hfc("table", "fh", "--out", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


TWO = "table demo --only hfc --only herding-replay".split()


@pytest.mark.parametrize("where", ["here", "ray"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--precision float16", "precision 'float16' needs a GPU, got device 'cpu'"),
        ("--tf32 true", "tf32=True needs a CUDA GPU, got device 'cpu'"),
    ],
)
def test_a_precision_that_the_device_lacks_is_one_line_before_the_first_run(
    shell, tmp_path, monkeypatch, nothing_runs, where, given, said
):
    node = SimpleNamespace(cluster_resources=lambda: {"CPU": 4.0})
    monkeypatch.setattr("avalanche_hfc.lab.jobs.cluster", lambda **_: nullcontext(node))
    device = ["--on", "ray"] if where == "ray" else ["--device", "cpu"]
    code, _, errors = shell(*TWO, *device, *given.split(), "--out", tmp_path / "runs")
    lines = [line for line in errors.splitlines() if "needs a" in line]
    assert code == 2 and len(lines) == 1 and said in lines[0]
    assert lines[0].startswith("hfc: digits-b0-t5-")
    assert not (tmp_path / "runs").exists()


class FullDisk:
    free = 1000


def test_the_room_is_that_of_all_runs(tmp_path, monkeypatch):
    runs = runs_of(cells_of("fh", "demo", ["icarl", "hfc"]), 3, tmp_path)
    models = [jobs.build_model(run.recipe) for run in runs]
    one = [checkpoint.room_of(model, torch.optim.AdamW(model.parameters())) for model in models]
    FullDisk.free = sum(one)
    monkeypatch.setattr("shutil.disk_usage", lambda path: FullDisk)
    jobs.check_room(runs, tmp_path)
    FullDisk.free = sum(one) - 1
    with pytest.raises(OSError, match="No space left"):
        jobs.check_room(runs, tmp_path)
