"""Callbacks: hooks into the course of a trial."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any

from detlab.errors import InvalidHP
from detlab.pytorch.errors import CallbackFailed, TrainerError

logger = logging.getLogger("detlab.pytorch")


class PyTorchCallback:
    """Override the hooks you need and return instances from `PyTorchTrial.build_callbacks()`.

    Every rank calls its own copy, except where a hook says that the chief alone does. A callback that keeps state
    overrides `state_dict` and `load_state_dict`; the chief's state goes into checkpoints and is loaded on all ranks.
    """

    def on_trial_startup(self, first_batch_idx: int, checkpoint_uuid: str | None) -> None:
        """Before anything else: the index of the first batch to train, and the checkpoint resumed from."""

    def on_trial_shutdown(self) -> None:
        """At the very end, after failures too."""

    def on_training_start(self) -> None:
        """Once, after the state is restored and before the first batch."""

    def on_training_epoch_start(self, epoch_idx: int) -> None:
        """Before the first batch of an epoch; not when training resumes within one."""

    def on_training_epoch_end(self, epoch_idx: int) -> None:
        """After the last batch of an epoch."""

    def on_training_workload_end(self, avg_metrics: dict[str, Any], batch_metrics: list[dict[str, Any]]) -> None:
        """After each stretch of batches whose metrics were reported together."""

    def on_validation_start(self) -> None:
        """Before a validation."""

    def on_validation_end(self, metrics: dict[str, Any]) -> None:
        """After a validation, with the metrics of all ranks together; what the chief adds to them is reported."""

    def on_validation_epoch_start(self) -> None:
        """Before the pass over the validation data; not with `evaluate_full_dataset`."""

    def on_validation_epoch_end(self, outputs: list[Any]) -> None:
        """After the pass over the validation data, with what `evaluate_batch` returned on this rank."""

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any] | None) -> None:
        """Before a checkpoint's content is loaded; it may be changed."""

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        """Before a checkpoint is saved: what is added to its content is saved too. Chief alone."""

    def on_checkpoint_write_end(self, checkpoint_dir: str) -> None:
        """After the files of a checkpoint were written and before they are uploaded; files may be added.

        Chief alone, in the training thread, at the first control point after the write.
        """

    def on_checkpoint_end(self, checkpoint_dir: str) -> None:
        """Do the same as `on_checkpoint_write_end`, which replaced this hook in Determined. Chief alone."""

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        """After a checkpoint was uploaded and committed; some batches may have been trained since its save."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state to store in a checkpoint: numbers, strings, tensors, dicts and lists. Chief alone."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""


HOOKS = tuple(
    name for name in vars(PyTorchCallback) if name.startswith("on_") or name in {"state_dict", "load_state_dict"}
)


_EPOCH_START = "on_training_epoch_start"
"""Before Determined 0.17.8 it had no argument."""


class CallbackSet:
    """The callbacks of a trial on one rank: calls the overridden hooks only, in order.

    Args:
        callbacks: By name, as `build_callbacks` returned them.
        where: Tells where training is, for error messages.

    Raises:
        TrainerError: They are not a dict of `PyTorchCallback`s.
    """

    def __init__(self, callbacks: dict[str, PyTorchCallback], where: Callable[[], str]) -> None:
        if not isinstance(callbacks, dict):
            raise TrainerError(f"build_callbacks() must return a dict of callbacks by name, not {type(callbacks)!r}")
        wrong = [f"{name!r}: {item!r}" for name, item in callbacks.items() if not isinstance(item, PyTorchCallback)]
        if wrong:
            raise TrainerError.of("build_callbacks() returned objects that are not a PyTorchCallback:", wrong)
        self._callbacks = callbacks
        self._where = where
        self._overridden = {hook: self._that_override(hook) for hook in HOOKS}
        self._without_index = {name for name in self._overridden[_EPOCH_START] if not self._takes_index(name)}

    def _that_override(self, hook: str) -> list[str]:
        base = getattr(PyTorchCallback, hook)
        return [
            name
            for name, callback in self._callbacks.items()
            if getattr(getattr(callback, hook), "__func__", None) is not base
        ]

    def _takes_index(self, name: str) -> bool:
        """Return whether a callback's hook wants the index of the epoch; warn if it does not."""
        callback = self._callbacks[name]
        if inspect.signature(getattr(callback, _EPOCH_START)).parameters:
            return True
        logger.warning(
            "callback %r (%s): %s(self) without the index of the epoch is deprecated: define %s(self, epoch_idx)",
            name,
            type(callback).__name__,
            _EPOCH_START,
            _EPOCH_START,
        )
        return False

    def wants(self, *hooks: str) -> bool:
        """Return whether a callback overrides one of the hooks."""
        return any(self._overridden[hook] for hook in hooks)

    def call(self, hook: str, *args: Any) -> None:
        """Call a hook of every callback that overrides it.

        Raises:
            CallbackFailed: One of them raised; the rest of them is not called.
            InvalidHP: One of them said that the hyperparameters are invalid.
        """
        for name in self._overridden[hook]:
            self._call(name, hook, *args)

    def call_all(self, hook: str) -> None:
        """Call a hook of every callback, each even if others raise; then raise the first failure."""
        failures = []
        for name in self._overridden[hook]:
            try:
                self._call(name, hook)
            except Exception as error:  # raised below, when the others have had their turn
                failures.append(error)
        if failures:
            raise failures[0]

    def state(self) -> dict[str, Any]:
        """Return the state of all callbacks that have one, by name."""
        return {name: self._call(name, "state_dict") for name in self._overridden["state_dict"]}

    def load_state(self, states: dict[str, Any]) -> Iterable[str]:
        """Load states by name; return the names of callbacks that the trial does not have."""
        for name in self._overridden["load_state_dict"]:
            if name in states:
                self._call(name, "load_state_dict", states[name])
        return [name for name in states if name not in self._callbacks]

    def _call(self, name: str, hook: str, *args: Any) -> Any:
        callback = self._callbacks[name]
        if hook == _EPOCH_START and name in self._without_index:
            args = ()
        try:
            return getattr(callback, hook)(*args)
        except InvalidHP:
            raise
        except Exception as error:  # whatever a user's callback raises
            raise CallbackFailed(
                f"callback {name!r} ({type(callback).__name__}) raised in {hook}, {self._where()}: "
                f"{type(error).__name__}: {error}"
            ) from error
