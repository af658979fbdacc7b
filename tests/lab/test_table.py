"""Starting over: run folders are moved, nothing is deleted, and nothing that is not theirs is
touched.
"""

import pytest

from avalanche_hfc.lab import recipe
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.lab.table import TableRun, set_aside

OWN = recipe("digits-b0-t5-hfc@demo")


def run_in(out, seed):
    run = TableRun(OWN, seed, out / OWN.name / str(seed))
    run.folder.mkdir(parents=True)
    RunFolder(run.folder).begin(OWN.as_dict(), seed, "a machine")
    (run.folder / "steps.csv").write_text(f"rows of seed {seed}")
    return run


def test_run_folders_are_moved_and_everything_else_stays(tmp_path):
    out = tmp_path / "runs"
    runs = [run_in(out, seed) for seed in (0, 1)]
    (out / "someone-else" / "0").mkdir(parents=True)
    (out / "someone-else" / "0" / "steps.csv").write_text("not theirs")
    for number, kept in ((1, runs), (2, runs[:1])):
        target = set_aside(kept, out)
        assert target == tmp_path / f"runs.old-{number}"
        for run in kept:
            moved = target / OWN.name / str(run.seed)
            assert (
                not run.folder.exists()
                and (moved / "steps.csv").read_text() == f"rows of seed {run.seed}"
            )
            assert sorted(path.name for path in moved.iterdir()) == ["recipe.json", "steps.csv"]
        if number == 1:
            run_in(out, 0)
    assert (out / "someone-else" / "0" / "steps.csv").read_text() == "not theirs"
    assert set_aside(runs, out) is None and not (tmp_path / "runs.old-3").exists()


def test_a_run_that_is_being_trained_is_left_alone_and_so_are_the_others(tmp_path):
    out = tmp_path / "runs"
    runs = [run_in(out, seed) for seed in (0, 1)]
    with RunFolder(runs[1].folder).owned(), pytest.raises(ValueError, match="is in use"):
        set_aside(runs, out)
    assert all((run.folder / "steps.csv").exists() for run in runs) and [
        path.name for path in tmp_path.iterdir()
    ] == ["runs"]
