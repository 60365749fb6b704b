"""The collector of garbage rests during a pass, and only then."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from detlab_hub.core.scheduling.gc_pause import without_collection


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


def test_passes_in_two_threads_do_not_leave_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """One saw it off, since the other was at work; the other started it, and the one stopped it for good."""
    first, second = without_collection(), without_collection()
    checked = gc.isenabled

    def look_while_the_other_ends() -> bool:
        found = checked()
        monkeypatch.setattr(gc, "isenabled", checked)
        first.__exit__(None, None, None)
        return found

    with ThreadPoolExecutor(1) as other:
        first.__enter__()
        monkeypatch.setattr(gc, "isenabled", look_while_the_other_ends)
        other.submit(second.__enter__).result()
        if gc.isenabled is look_while_the_other_ends:  # it had no need to look
            monkeypatch.setattr(gc, "isenabled", checked)
            first.__exit__(None, None, None)
            assert not gc.isenabled(), "the second pass is under way"
        other.submit(second.__exit__, None, None, None).result()
    on = gc.isenabled()
    gc.enable()
    assert on
