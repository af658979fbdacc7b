"""Several ranks train what one rank trains: weights, exemplars, predictions, rows."""

import pytest
import torch
from contract_ranks import BY_NAME, distance, do, on_ranks
from contract_runs import LR
from tiny_runs import check_rows, rows_of

from avalanche_hfc.lab.ranks import backend_for
from avalanche_hfc.lab.run_folder import RunFolder
from avalanche_hfc.plugins import GFCPlugin, GRDPlugin, HerdingReplayPlugin
from avalanche_hfc.ranks import Share

# Rounding grows by itself in AFC, see `AMPLIFIED`: it has a lower rate in float32, chosen so that
# one rank with turned rows is within the bound.
CALMER = {"lr": 2e-3}


def training(name, dtype="float32", **options):
    """A job: two steps of a strategy."""
    calmer = CALMER if dtype == "float32" and name.split()[0] == "afc" else {}
    return "trained", (name,), {"dtype": dtype, **calmer, **options}


VITS = [training(name) for name in BY_NAME]
CHECKPOINTED = training("foster hfc", checkpoint_activations=True)
AMPLIFIED = [training("afc hfc", lr=LR)]
# without gathering a rank must have rows of its own
EVEN = [training("hfc", batch=10), training("afc hfc", batch=10)]
TALK = [("disagreeing", (), {}), ("refused", (), {})]
EXACT = {"float32": 1e-5, "float64": 1e-10}


def changed(job, change):
    """The same job, with a change."""
    name, arguments, options = job
    return name, arguments, options | {"change": change}


def bound(job):
    """How far the weights may be apart."""
    return EXACT[job[2].get("dtype", "float32")]


def label(job):
    return " ".join([str(value) for value in (*job[1], *job[2].values())]) or job[0]


def check_equal(one, several, bound):
    for other in several:
        assert distance(one["weights"], other["weights"]) < bound
        assert one.get("exemplars") == other.get("exemplars")
        if "confusion" in one:
            assert torch.equal(one["confusion"], other["confusion"])
            assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
    assert distance(several[0]["weights"], several[-1]["weights"]) == 0  # bit for bit


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """job -> its results on two ranks."""
    folder = tmp_path_factory.mktemp("ranks")
    run = ("folder_run", (str(folder / "run"),), {})
    wrong = [changed(job, "no gathering") for job in EVEN]
    told = [(name, (str(folder),), {}) for name in ("copied_data", "listed_files", "fresh_run")]
    jobs = [*VITS, CHECKPOINTED, *AMPLIFIED, *wrong, *TALK, run]
    results = on_ranks(2, folder, [*jobs, *told])
    labels = [*map(label, jobs), *(job[0] for job in told)]
    found = {name: list(each) for name, *each in zip(labels, *results, strict=True)}
    assert len(found) == len(labels)
    return found | {"folder": folder}


@pytest.mark.parametrize("job", [*VITS, CHECKPOINTED], ids=label)
def test_two_ranks_train_what_one_rank_trains(two_ranks, job):
    check_equal(do(job), two_ranks[label(job)], bound(job))


@pytest.mark.parametrize("job", EVEN, ids=label)
def test_without_gathering_two_ranks_train_something_else(two_ranks, job):
    one, (other, _) = do(job), two_ranks[label(changed(job, "no gathering"))]
    assert distance(one["weights"], other["weights"]) > 3 * bound(job)


@pytest.mark.parametrize("job", AMPLIFIED, ids=label)
def test_what_float32_amplifies_is_rounding(two_ranks, job):
    """At the usual rate two ranks are further from one than others are, and so is one rank that
    has the rows of each batch in another order, by a similar amount.
    """
    one, (two, _) = do(job), two_ranks[label(job)]
    turned = do(changed(job, "turned rows"))
    rounding = distance(one["weights"], turned["weights"])
    assert bound(job) / 10 < rounding
    assert distance(one["weights"], two["weights"]) < 100 * rounding


def test_turned_rows_are_the_same_training_in_float64():
    job = training("afc hfc", dtype="float64")
    one, turned = do(job), do(changed(job, "turned rows"))
    assert 0 < distance(one["weights"], turned["weights"]) < bound(job)


def test_a_run_of_two_ranks_has_the_rows_of_one(two_ranks, tmp_path):
    do(("folder_run", (tmp_path / "one",), {}))
    check_rows(rows_of(tmp_path / "one"), rows_of(two_ranks["folder"] / "run"))


def test_ranks_that_differ_are_told_in_what_and_which(two_ranks):
    for said in two_ranks["disagreeing"]:
        assert said["value"].startswith("The ranks differ in the recipe: rank 1 has another")
        assert "random generator: seed all ranks alike: rank 1" in said["seed"]
        assert "the exemplars in memory: rank 1" in said["memory"]
        moved = "random generator before epoch 1 of step"
        assert f"{moved} 0 (train), which a plugin must move" in said["drawn"]
        assert f"{moved} 1 (compress), which a plugin must move" in said["drawn in phase"]
        assert all("alike: rank 1 has another" in said[k] for k in ("drawn", "drawn in phase"))
        assert said["first"] == "no such folder"


def test_what_would_not_be_exact_is_refused_by_name(two_ranks):
    for said in two_ranks["refused"]:
        assert "batch of 1 images cannot be divided among 2 ranks" in said["batch"]
        assert "attn" in said["attention"] and "not exact on 2 ranks" in said["attention"]
        assert said["random layer"].startswith("Mine: 2 (StochasticDepth) depends on the whole")
        assert said["batch norm"].startswith("HFCStrategy: stem.1 (BatchNorm2d) depends on the")
        for name in ("GFCPlugin", "GRDPlugin", "HerdingReplayPlugin"):
            assert said[name].startswith(f"{name} cannot act in Naive on 2 ranks")


def test_data_may_be_at_another_place_on_each_rank_and_must_be_the_same(two_ranks):
    for said in two_ranks["copied_data"]:
        assert said["copies"] == "not refused"
        assert said["others"].startswith("The ranks differ in the data: rank 1 has another than")
        assert said["weights"].startswith("The ranks differ in the weights of the model: rank 1")
    written = [(two_ranks["folder"] / name).exists() for name in ("copies", "others", "weights")]
    assert written == [True, False, False]


def test_the_files_of_data_without_records_are_compared_before_anything_is_written(two_ranks):
    for said in two_ranks["listed_files"]:
        assert said.startswith("The ranks differ in the data: rank 1 has another than the rest")
    assert not (two_ranks["folder"] / "of files").exists()


def test_ranks_start_over_together_and_only_after_all_checks(two_ranks):
    for rank, said in enumerate(two_ranks["fresh_run"]):
        assert said["alone"].startswith("The ranks differ in --fresh: rank 1 has another than")
        assert said["weights"].startswith("The ranks differ in the weights of the model")
        assert (said["before"], said["all"], said["moves"]) == (0, "not refused", int(rank == 0))
    folders = [two_ranks["folder"] / name for name in ("fresh before", "fresh")]
    names = [RunFolder(folder).metadata()["recipe"]["name"] for folder in folders]
    assert names == ["tiny-hfc", "tiny-icarl"] and RunFolder(folders[1]).finished
    assert RunFolder(folders[1]).metadata()["launch"] == "this one"


def test_a_run_resumed_with_one_two_and_three_ranks_has_the_rows_of_one(tmp_path):
    do(("folder_run", (tmp_path / "one",), {}))
    run = tmp_path / "run"
    do(("folder_run", (run,), {"stopped_in": 0}))
    for ranks, stop in ((2, 1), (3, None)):
        place = tmp_path / str(ranks)
        place.mkdir()
        on_ranks(ranks, place, [("folder_run", (run,), {"stopped_in": stop})])
        log = (run / "log.txt").read_text()
        assert f", ranks: {ranks}): its rows may differ" in log
        assert log.count("resumes in step") == ranks - 1
    check_rows(rows_of(tmp_path / "one"), rows_of(run))


def test_our_plugins_declare_that_they_are_exact_on_several_ranks():
    plugins = (GFCPlugin, GRDPlugin, HerdingReplayPlugin)
    assert all(plugin.supports_distributed for plugin in plugins)


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_shares_of_all_ranks_are_the_batch(ranks, size):
    rows, shares = list(range(size)), [Share(rank, ranks, size) for rank in range(ranks)]
    assert [row for share in shares for row in share.of(rows)[: share.own]] == rows
    assert max(share.own for share in shares) - min(share.own for share in shares) <= 1
    assert all(len(share.of(rows)) == max(share.own, 1) for share in shares)


def test_nccl_carries_cuda_and_gloo_the_rest():
    assert [backend_for(device) for device in ("cuda", "cuda:3", "cpu")] == ["nccl", "nccl", "gloo"]


MATRIX = [
    (ranks, training(name, dtype))
    for ranks, dtype in ((3, "float32"), (3, "float64"), (2, "float64"))
    for name in BY_NAME
]


@pytest.fixture(scope="module")
def many_ranks(tmp_path_factory):
    """(number of ranks, job) -> its results on each rank."""
    found = {}
    for ranks in (2, 3):
        jobs = [job for number, job in MATRIX if number == ranks]
        results = on_ranks(ranks, tmp_path_factory.mktemp("ranks"), jobs)
        for job, *each in zip(jobs, *results, strict=True):
            found[ranks, label(job)] = list(each)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "job"), MATRIX, ids=[f"{ranks} ranks, {label(job)}" for ranks, job in MATRIX]
)
def test_any_number_of_ranks_trains_what_one_rank_trains(many_ranks, ranks, job):
    check_equal(do(job), many_ranks[ranks, label(job)], bound(job))
