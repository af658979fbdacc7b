"""Ctrl-C ends a run, whatever becomes of the KeyboardInterrupt on its way."""

import signal
from contextlib import suppress

import pytest

from avalanche_hfc.lab.machine import Interrupts


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_that_became_another_error_is_ctrl_c_with_that_error_as_its_cause():
    with pytest.raises(KeyboardInterrupt) as raised, Interrupts():
        try:
            press_ctrl_c()
        except KeyboardInterrupt:
            raise RuntimeError("a callback failed") from None
    assert str(raised.value.__cause__) == "a callback failed"


def test_ctrl_c_that_was_dropped_ends_the_block():
    done = []
    with pytest.raises(KeyboardInterrupt), Interrupts():
        with suppress(KeyboardInterrupt):
            press_ctrl_c()
        done.append("the rest")
    assert done == ["the rest"]


def test_an_error_without_ctrl_c_stays_what_it_is():
    with pytest.raises(RuntimeError, match="an error"), Interrupts():
        raise RuntimeError("an error")


def test_the_handler_from_before_is_back_after_the_block():
    with suppress(KeyboardInterrupt), Interrupts():
        press_ctrl_c()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
