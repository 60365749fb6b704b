"""The set of a trial's callbacks, by itself."""

from __future__ import annotations

import pytest

from detlab.pytorch.callback import CallbackSet, PyTorchCallback


def test_an_epoch_hook_without_the_index_is_called_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Regression: callbacks as before Determined 0.17.8 failed with a TypeError."""
    calls: list[object] = []

    class Old(PyTorchCallback):
        def on_training_epoch_start(self) -> None:  # type: ignore[override]
            calls.append("old")

    class New(PyTorchCallback):
        def on_training_epoch_start(self, epoch_idx: int) -> None:
            calls.append(epoch_idx)

    callbacks = CallbackSet({"old": Old(), "new": New(), "none": PyTorchCallback()}, lambda: "here")
    for epoch in (0, 1):
        callbacks.call("on_training_epoch_start", epoch)
    assert calls == ["old", 0, "old", 1]
    assert caplog.text.count("is deprecated") == 1
    assert "callback 'old' (Old): on_training_epoch_start(self) without the index" in caplog.text
