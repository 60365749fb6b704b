"""Failure cards from output as programs really write it."""

from __future__ import annotations

from detlab_hub.services.diagnosis import Line, diagnose

TASK = "3.5054fc04-5b1c-4baa-917d-9576b78fb131.1"
TORCH = (
    "Traceback (most recent call last):",
    f'  File "/x/tasks/{TASK}/work/train.py", line 18, in <module>',
    "    raise RuntimeError('enough')",
    "RuntimeError: enough",
)


def test_tracebacks_with_torchs_own_rank_prefix_are_read() -> None:
    lines = [Line(0, "fine"), *(Line(1, f"[rank1]: {text}") for text in TORCH), Line(None, "torchrun gives up")]
    found = diagnose(lines, exit_code=1, rank=1, allocation_id=TASK)
    assert (found.kind, found.message) == ("exception", "RuntimeError: enough")
    assert (found.rank, found.where) == (1, "train.py, line 18")
    assert found.log_tail == TORCH


def test_torchs_prefix_tells_the_rank_where_no_wrapper_does() -> None:
    lines = [Line(None, "fine"), *(Line(None, f"[rank3]: {text}") for text in TORCH)]
    found = diagnose(lines, exit_code=1, allocation_id=TASK)
    assert (found.rank, found.message) == (3, "RuntimeError: enough")


def test_a_program_that_cannot_be_started_is_named() -> None:
    said = "detlab: cannot start 'no-such-command': [Errno 2] No such file or directory: 'no-such-command'"
    found = diagnose([Line(None, said)], exit_code=127)
    assert found.kind == "config"
    assert found.message.startswith("the entrypoint cannot be started: 'no-such-command'")
