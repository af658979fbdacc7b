"""Ten digits in three unequal steps."""

import pytest
from plugin_hosts import digits_benchmark


@pytest.fixture
def benchmark():
    return digits_benchmark()
