"""`hfc report` as a user types it."""

import pytest
from synthetic_runs import write_run


def test_it_writes_the_page_and_says_where(shell, tmp_path):
    write_run("runs/hfc/0", num_steps=2)
    assert shell("report", "runs")[:2] == (0, "Page: report/report.html\n")
    assert (tmp_path / "report" / "report.html").stat().st_size > 50_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere: no such folder"),
        (["empty"], "empty is not a run folder"),
        (["runs", "--paper", "nothing.csv"], "nothing.csv: no such file"),
        ([], "Missing argument 'FOLDER"),
    ],
)
def test_a_mistake_is_named_with_exit_code_2_and_nothing_is_written(
    shell, tmp_path, arguments, said
):
    (tmp_path / "empty").mkdir()
    write_run("runs/hfc/0", num_steps=2)
    code, _, errors = shell("report", *arguments)
    assert code == 2 and said in errors
    assert not (tmp_path / "report").exists()


def test_pictures_of_exemplars_come_from_the_data_of_the_recipe(tmp_path):
    import json

    from avalanche_hfc.lab import recipe
    from avalanche_hfc.lab.data import build_benchmark
    from avalanche_hfc.lab.read import read_runs
    from avalanche_hfc.report import pictures_of_recipe

    folder = write_run(tmp_path, seed=3)
    chosen = recipe("digits-b0-t5-hfc@demo")
    held = json.loads((folder / "recipe.json").read_text())
    (folder / "recipe.json").write_text(json.dumps({**held, "recipe": chosen.as_dict()}))
    look = pictures_of_recipe()(read_runs([folder])[0][0])
    first, second = build_benchmark(chosen, 3).train_stream[:2]
    place = len(first.dataset) + 4
    assert (look(place) == second.dataset.eval()[4][0].numpy()).all() and (
        look(4) == first.dataset.eval()[4][0].numpy()
    ).all()
