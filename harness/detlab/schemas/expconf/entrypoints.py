"""From an experiment's `entrypoint` to what a task runs."""

from __future__ import annotations

from detlab.schemas.expconf.checks.check import is_trial_class


def command_of(entrypoint: str | list[str], slots: int) -> str | list[str]:
    """Return the command of a task: a line for `sh -c`, or its words.

    The deprecated form `module:Class` is trained by the trainer's own script, one process per slot.

    Args:
        entrypoint: As in the config.
        slots: Slots of the task.
    """
    if not isinstance(entrypoint, str) or not is_trial_class(entrypoint):
        return entrypoint
    name = entrypoint.strip()
    if slots > 1:
        return ["python3", "-m", "detlab.launch.torch_distributed", "--trial", name]
    return ["python3", "-m", "detlab.pytorch", name]
