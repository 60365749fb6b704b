"""Failure cards from output as programs really write it."""

from __future__ import annotations

from detlab_hub.services.failures.diagnosis import Evidence, RankLine, classify

TASK = "3.5054fc04-5b1c-4baa-917d-9576b78fb131.1"
TORCH = (
    "Traceback (most recent call last):",
    f'  File "/x/tasks/{TASK}/work/train.py", line 18, in <module>',
    "    raise RuntimeError('enough')",
    "RuntimeError: enough",
)


def test_tracebacks_with_torchs_own_rank_prefix_are_read() -> None:
    lines = [
        RankLine(0, "fine"),
        *(RankLine(1, f"[rank1]: {text}") for text in TORCH),
        RankLine(None, "torchrun gives up"),
    ]
    found = classify(lines, Evidence(1, 1), allocation_id=TASK)
    assert (found.kind, found.message) == ("exception", "RuntimeError: enough")
    assert (found.rank, found.where) == (1, "train.py, line 18")
    assert found.log_tail == TORCH


def test_torchs_prefix_tells_the_rank_where_no_wrapper_does() -> None:
    lines = [RankLine(None, "fine"), *(RankLine(None, f"[rank3]: {text}") for text in TORCH)]
    found = classify(lines, Evidence(1), allocation_id=TASK)
    assert (found.rank, found.message) == (3, "RuntimeError: enough")


def test_a_program_that_cannot_be_started_is_named() -> None:
    said = "detlab: cannot start 'no-such-command': [Errno 2] No such file or directory: 'no-such-command'"
    found = classify([RankLine(None, said)], Evidence(127))
    assert found.kind == "config"
    assert found.message.startswith("the entrypoint cannot be started: 'no-such-command'")


HANG = (
    "detlab: rank 1 (host n1, pid 77) hangs: for 1800.4 s it has been in train_batch, at batch 5 (train.py, line 9, in "
    "train_batch), while the others wait for it. This attempt ends now, and the trial restarts from its last "
    "checkpoint. If the work is only slow, raise the limit of 1800 s: pytorch.init(hang_timeout=…)"
)


def test_a_rank_that_hangs_is_named_by_what_any_rank_said() -> None:
    lines = [RankLine(0, "fine"), RankLine(0, HANG), *(RankLine(0, text) for text in TORCH)]
    found = classify(lines, Evidence(1, 0), allocation_id=TASK)
    assert (found.kind, found.rank, found.where) == ("hang", 1, "train.py, line 9")
    assert found.message.startswith("rank 1 (host n1, pid 77) hangs: for 1800.4 s it has been in train_batch")
    assert found.message.endswith("while the others wait for it")
    assert found.log_tail[:2] == ("fine", HANG)


def test_a_rank_that_hangs_shows_its_own_stacks_and_cell() -> None:
    lines = [
        RankLine(0, HANG),
        RankLine(1, HANG),
        RankLine(1, "Thread 0x1 (most recent call first):"),
        RankLine(None, "torchrun ends"),
    ]
    cells = {"train.py": {"cell": 4, "line_offset": 2}}
    found = classify(lines, Evidence(1, 1), allocation_id=TASK, cells=cells)
    assert found.where == "cell 4, line 7"
    assert found.log_tail == (HANG, "Thread 0x1 (most recent call first):")


def test_a_line_of_a_megabyte_holds_up_nobody() -> None:
    hostile = [RankLine(0, "x" * 1_000_000), RankLine(0, "x:" * 500_000), RankLine(0, "nan" * 300_000)] * 7
    for exit_code in (1, 2, 126, 127):
        assert classify(hostile, Evidence(exit_code)).kind
