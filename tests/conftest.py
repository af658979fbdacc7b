"""Settings of all tests, and their tiers: `quick` and `contract` are given here by folder, the
other markers in the files themselves. What has no marker belongs to `full`.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # two test processes on two cores

import signal
from collections import Counter
from pathlib import Path

import jaxtyping
import pytest
import torch
from hypothesis import settings

TESTS = Path(__file__).parent
QUICK = {"losses", "memory", "metrics", "test_architecture.py"}
TIERS = ("slow", "kill", "browser", "quick", "contract")  # a test of two counts to the first
collect_ignore = ["support", "mutate.py", "mutations.py"]  # neither tests nor doctests

torch.set_num_threads(1)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores Ctrl-C
settings.register_profile("ours", deadline=None, max_examples=40, derandomize=True, print_blob=True)
settings.load_profile("ours")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def small_weights(tmp_path_factory, monkeypatch):
    """The weights of scale small; random ones of their form where the package does not have them
    yet.
    """
    from safetensors.torch import save_file

    from avalanche_hfc.models import ViT
    from avalanche_hfc.models import weights as files

    if "small-mae" not in files.packaged_weights():
        folder = tmp_path_factory.mktemp("weights")
        model = ViT(
            "vit_tiny_patch16_224", image_size=32, patch_size=8, msa_blocks=6,
            backbone_options={"embed_dim": 192, "num_heads": 3},
        )  # fmt: skip
        tensors = {name: value.clone() for name, value in model.backbone.state_dict().items()}
        save_file(tensors, folder / "small-mae.safetensors", {"num_heads": "3"})
        monkeypatch.setattr(files, "PACKAGED", folder)


def pytest_collection_modifyitems(items):
    for item in items:
        inside = item.path.is_relative_to(TESTS)  # or a doctest of the package
        folder = item.path.relative_to(TESTS).parts[0] if inside else None
        if folder in QUICK or not inside:
            item.add_marker("quick")
        if folder == "contracts":
            item.add_marker("contract")


def pytest_terminal_summary(terminalreporter):
    """Number of tests of each tier, and the minutes they would take one after the other."""
    numbers, seconds = Counter(), Counter()
    for report in (each for kind in terminalreporter.stats.values() for each in kind):
        if isinstance(report, pytest.TestReport):
            tier = next((tier for tier in TIERS if tier in report.keywords), "full")
            numbers[tier] += report.when == "call"
            seconds[tier] += report.duration
    if numbers.total():
        terminalreporter.section("minutes of work in each tier")
    for tier in (*reversed(TIERS), "full"):
        if numbers[tier]:
            terminalreporter.write_line(
                f"{tier:8}{numbers[tier]:6} tests{seconds[tier] / 60:7.1f} min"
            )


@pytest.fixture
def annotations_unchecked():
    """As for a user, who has no type checker at run time: the package's own message must come."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
