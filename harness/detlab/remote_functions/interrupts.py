"""What an interrupt means for a task that is being watched: kill it, stop watching, or continue."""

from __future__ import annotations

import sys
import time

from detlab.client.tasks import Task

END_SECONDS = 60.0
"""How long a kill may take before one says so."""


def can_ask() -> bool:
    """Whether there is a person to ask: a notebook's front end that takes input, or a terminal."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        return bool(getattr(kernel, "_allow_stdin", True))
    return sys.stdin is not None and sys.stdin.isatty()


def ask(task_id: str) -> str:
    """Ask what an interrupt meant; return `k` for kill, `s` for stop watching, anything else for continue."""
    question = f"{task_id} still runs. k: kill it, s: stop watching (it continues), Enter: continue watching > "
    try:
        return input(question).strip().lower()[:1]
    except KeyboardInterrupt:
        return "k"  # interrupted twice: that is clear enough
    except Exception:  # a front end that cannot ask
        return "k"


def kill_and_wait(task: Task) -> None:
    """Kill a task, and wait for its end for a minute."""
    task.kill()
    deadline = time.monotonic() + END_SECONDS
    while not task.state.terminal and time.monotonic() < deadline:
        time.sleep(0.2)  # nothing tells of the end but asking: other threads may be stuck in an outage
        task.reload()


def after_kill(task: Task) -> str:
    """Return what became of a task that was killed."""
    if not task.state.terminal:
        return f"{task.id} is being killed"
    waited = task.view.started_at is None
    return f"{task.id} {'was taken out of the queue' if waited else 'was killed; its slots are free again'}"
