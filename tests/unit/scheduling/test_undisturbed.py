"""The collector of garbage rests during a pass, and only then."""

from __future__ import annotations

import gc

import pytest

from detlab_hub.core.scheduling.undisturbed import without_collection


def test_it_rests_and_goes_on() -> None:
    assert gc.isenabled()
    with without_collection():
        assert not gc.isenabled()
        with without_collection():
            pass
        assert not gc.isenabled(), "a pass within a pass does not wake it"
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="a pass failed"), without_collection():
        raise ValueError("a pass failed")
    assert gc.isenabled()


def test_where_it_is_off_it_stays_off() -> None:
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
