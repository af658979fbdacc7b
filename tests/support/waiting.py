"""Waiting for what another process does, however busy the machine is."""

import time

PATIENCE = 3600  # seconds; only a test that hangs takes longer


def wait_for(look, process):
    """What `look()` returns, once there is something; `process`, a Popen, must do it before it
    ends.
    """
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        running = process.poll() is None
        if seen := look():
            return seen
        assert running, process.communicate()
        time.sleep(0.02)
    raise AssertionError(f"nothing was seen within {PATIENCE} seconds")


def has_rows(path, number=1):
    """Whether a CSV file has that many whole rows below its header."""
    return path.exists() and path.read_text().count("\n") > number
