"""Ten digits in three unequal steps, and the loops of the losses' tests."""

import sys
from pathlib import Path

import jaxtyping
import pytest

sys.path.insert(
    0, str(Path(__file__).parents[1] / "losses")
)  # loops.py: the equations without tensors

from plugin_hosts import digits_benchmark


@pytest.fixture
def benchmark():
    return digits_benchmark()


@pytest.fixture
def annotations_unchecked():
    """As for a user, who has no type checker at run time: the package's own message must come."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
