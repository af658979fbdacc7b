"""CSV files that grow by whole rows."""

import pandas as pd
import pytest

from avalanche_hfc.lab.rows import RowFile, replace_file


def test_rows_come_back_as_they_were_written_and_pandas_reads_them(tmp_path):
    file = RowFile(tmp_path / "steps.csv", ("name", "value"))
    file.extend([{"value": 0.1 + 0.2, "name": 'a, "b"'}])
    file.extend([{"name": "c", "value": float("nan")}])
    assert file.rows()[0] == {"name": 'a, "b"', "value": repr(0.1 + 0.2)}
    table = pd.read_csv(file.path)
    assert table["value"][0] == 0.1 + 0.2 and table["value"].isna()[1]


def test_rows_that_belong_together_are_one_write(tmp_path, monkeypatch):
    file = RowFile(tmp_path / "steps.csv", ("a", "b"))
    synced = []
    monkeypatch.setattr(
        "avalanche_hfc.lab.rows.os.fsync", lambda number: synced.append(file.path.read_text())
    )
    file.extend([{"a": 1, "b": 2}, {"b": 4, "a": 3}])
    assert synced == ["a,b\n1,2\n3,4\n"]
    with pytest.raises(KeyError):
        file.extend([{"a": 5, "b": 6}, {"a": 7}])
    assert file.path.read_text() == "a,b\n1,2\n3,4\n"


def test_a_row_cut_short_by_a_kill_is_dropped_and_no_other(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("a,b\n1,2\n3,")
    file = RowFile(path, ("a", "b"))
    file.extend([{"a": 5, "b": 6}])
    assert path.read_text() == "a,b\n1,2\n5,6\n"


def test_a_file_with_other_columns_is_refused_and_kept(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="steps.csv has other columns than a, b"):
        RowFile(path, ("a", "b"))
    assert path.read_text() == "x,y\n1,2\n"


def test_a_replacement_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "summary.csv"
    replace_file(path, "old")

    def full_disk(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("avalanche_hfc.lab.rows.os.replace", full_disk)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, "new")
    assert path.read_text() == "old"
