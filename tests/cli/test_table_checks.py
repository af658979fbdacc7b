"""What `hfc table` looks for once, before its first run."""

import pytest
from image_folders import hfc

from avalanche_hfc.tasks import table_checks
from avalanche_hfc.tasks.table import cells_of, runs_of


@pytest.fixture
def nothing_runs(monkeypatch):
    def refused(*args, **kwargs):
        raise AssertionError("a run")

    monkeypatch.setattr("avalanche_hfc.tasks.pool.outcomes", refused)


def test_device_data_and_disk_are_refused_once_before_the_first_run(
    tmp_path, monkeypatch, nothing_runs
):
    small = ("--scale", "small", "--only", "hfc", "--out", tmp_path / "runs")
    with pytest.raises(ValueError, match="No device 'tpu7' here"):
        hfc("table", "cifar100", *small, "--device", "tpu7")
    with pytest.raises(FileNotFoundError, match="CIFAR-100 is not on disk"):
        hfc("table", "cifar100", *small, "--data", tmp_path)
    monkeypatch.setattr(table_checks.shutil, "disk_usage", lambda path: FullDisk)
    with pytest.raises(OSError, match="checkpoints of all runs need about .* 0.0 GB are free"):
        hfc("table", "fh", "--out", tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


class FullDisk:
    free = 1000


def test_the_room_is_that_of_all_runs(tmp_path, monkeypatch):
    runs = runs_of(cells_of("fh", "demo", ["icarl", "hfc"]), 3, tmp_path)
    one = [table_checks.checkpoints_size(table_checks.build_model(run.recipe), 2) for run in runs]
    FullDisk.free = sum(one)
    monkeypatch.setattr(table_checks.shutil, "disk_usage", lambda path: FullDisk)
    table_checks.check_room(runs, tmp_path)
    FullDisk.free = sum(one) - 1
    with pytest.raises(OSError, match="No space left"):
        table_checks.check_room(runs, tmp_path)
