"""Several ranks train what one rank trains: weights, exemplars, predictions, rows."""

import pytest
import torch
from contract_ranks import BY_NAME, distance, do, on_ranks
from tiny_runs import rows_of

from avalanche_hfc.parallel import Share, backend_for
from avalanche_hfc.plugins import GFCPlugin, GRDPlugin, HerdingReplayPlugin

WITH_MAPS_OR_PHASES = ("hfc", "podnet hfc", "foster hfc")
RESNETS = [
    ("trained", (name,), {"model": "resnet", "dtype": "float64"}) for name in WITH_MAPS_OR_PHASES
]  # 31 batch norms over a few images: in float32 the rounding of one rank grows by itself
NORMS = [("normed", (size,), {}) for size in (7, 1)]
VITS = [("trained", (name,), {}) for name in BY_NAME]
RANDOM = ("random_layers", (), {})
PIECES = ("trained", ("foster hfc",), {"micro_batch": 2})  # of shares of 5 and 4 rows
EVEN = ("trained", ("hfc",), {"batch": 10})  # without gathering a rank must have rows of its own
NO_GATHERING = ("trained", ("hfc",), {"batch": 10, "gathering": False})
TALK = [("disagreeing", (), {}), ("refused", (), {})]
EXACT = {"float32": 1e-5, "float64": 1e-10}


def bound(job):
    """How far the weights may be apart. AFC divides by the length of maps, which rounding turns."""
    dtype = job[2].get("dtype", "float32")
    return EXACT[dtype] * (20 if job[1] and str(job[1][0]).startswith("afc") else 1)


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
    jobs = [*VITS, *RESNETS, *NORMS, RANDOM, PIECES, NO_GATHERING, *TALK, run]
    results = on_ranks(2, folder, jobs)
    found = {label(job): list(each) for job, *each in zip(jobs, *results, strict=True)}
    return found | {"folder": folder}


@pytest.mark.parametrize("job", [*VITS, *RESNETS, *NORMS, RANDOM, PIECES], ids=label)
def test_two_ranks_train_what_one_rank_trains(two_ranks, job):
    check_equal(do(job), two_ranks[label(job)], bound(job))


def test_without_gathering_two_ranks_train_something_else(two_ranks):
    one, (other, _) = do(EVEN), two_ranks[label(NO_GATHERING)]
    assert distance(one["weights"], other["weights"]) > 1e-3


def test_a_run_of_two_ranks_has_the_rows_of_one(two_ranks, tmp_path):
    do(("folder_run", (tmp_path / "one",), {}))
    one, two = (rows_of(path) for path in (tmp_path / "one", two_ranks["folder"] / "run"))
    assert one["exemplars"] == two["exemplars"]
    assert one["confusion"] == two["confusion"]
    for name in ("steps", "classes", "train"):
        for row, other in zip(one[name], two[name], strict=True):
            assert [rounded(field) for field in row] == [rounded(field) for field in other]


def rounded(field):
    """A number to four digits after the point; a digest of weights is left out."""
    if len(field) == 16 and all(letter in "0123456789abcdef" for letter in field):
        return "digest"
    try:
        return pytest.approx(float(field), abs=1e-4, rel=1e-4)
    except ValueError:
        return field


def test_ranks_that_differ_are_told_in_what_and_which(two_ranks):
    for said in two_ranks["disagreeing"]:
        assert said["value"].startswith("The ranks differ in the recipe: rank 1 has another")
        assert "random generator: seed all ranks alike: rank 1" in said["seed"]
        assert "the exemplars in memory: rank 1" in said["memory"]
        assert said["first"] == "no such folder"


def test_what_would_not_be_exact_is_refused_by_name(two_ranks):
    for said in two_ranks["refused"]:
        assert "batch of 1 images cannot be divided among 2 ranks" in said["batch"]
        assert "attn" in said["attention"] and "not exact on 2 ranks" in said["attention"]
        for name in ("GFCPlugin", "HerdingReplayPlugin"):
            assert said[name].startswith(f"{name} cannot act in Naive on 2 ranks")


def test_our_plugins_declare_that_they_are_exact_on_several_ranks():
    plugins = (GFCPlugin, GRDPlugin, HerdingReplayPlugin)
    assert all(plugin.supports_distributed for plugin in plugins)


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_shares_of_all_ranks_are_the_batch(ranks, size):
    rows, shares = list(range(size)), [Share(rank, ranks, size) for rank in range(ranks)]
    assert [row for share in shares for row in share.of(rows)[: share.own]] == rows
    assert max(share.own for share in shares) - min(share.own for share in shares) <= 1
    assert all(len(share.of(rows)) == share.loaded >= 1 for share in shares)


def test_nccl_carries_cuda_and_gloo_the_rest():
    assert [backend_for(device) for device in ("cuda", "cuda:3", "cpu")] == ["nccl", "nccl", "gloo"]


MATRIX = [
    (ranks, ("trained", (name,), {"model": model, "dtype": dtype}))
    for ranks, dtype in ((3, "float32"), (3, "float64"), (2, "float64"))
    for model in ("vit", "resnet")
    for name in BY_NAME
    if not (model == "resnet" and (dtype == "float32" or name.startswith("dytox")))
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
