"""Ten digits in three unequal steps."""

import jaxtyping
import pytest
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
