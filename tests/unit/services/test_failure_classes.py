"""Each class of failure from what programs, torch and the kernel really write; and the rank that failed first."""

from __future__ import annotations

import math
import time

import pytest

from detlab_hub.services.failures.diagnosis import Evidence, classify
from detlab_hub.services.failures.rank_faults import RankLine, failing_rank

HEAD = ("Traceback (most recent call last):", '  File "train.py", line 7, in <module>', "    step()")
CUDA_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.11 "
    "GiB of which 12.06 GiB is free."
)
SHM = (
    "RuntimeError: DataLoader worker (pid 4242) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit."
)
UNSAID = " (it has no message), raised by: step()"
ANOMALY = "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output."
LOST = "2 reports of this task were lost: /t/spool/metrics.jsonl was changed before they reached the master"
KERNEL = "detlab: the kernel ran out of memory and ended a process while this task ran"


def raised(error: str, rank: int | None = None) -> list[RankLine]:
    return [RankLine(rank, text) for text in (*HEAD, error)]


ERRORS = [
    (CUDA_OOM, 1, "oom"),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory.", 1, "oom"),
    ("RuntimeError: CUDA error: out of memory", 1, "oom"),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED", 1, "oom"),
    ("MemoryError", 1, "oom"),
    ("OSError: [Errno 12] Cannot allocate memory", 1, "oom"),
    (
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB for an array with shape (1000000,)",
        1,
        "oom",
    ),
    ("ModuleNotFoundError: No module named 'flash_attn'", 1, "import"),
    ("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", 1, "import"),
    ("OSError: [Errno 28] No space left on device", 1, "disk_full"),
    (ANOMALY, 1, "nan"),
    ("ValueError: cannot convert float NaN to integer", 1, "nan"),
    ("OverflowError: cannot convert float infinity to integer", 1, "nan"),
    ("FloatingPointError: overflow encountered in exp", 1, "nan"),
    ("AssertionError: loss is nan.", 1, "nan"),
    ("AssertionError: loss=-inf at step 12", 1, "nan"),
    ("ValueError: Input X contains NaN.", 1, "nan"),
    ("train.LossIsNaN: step 3", 1, "nan"),
    # What only looks like one of them.
    ("ValueError: could not read nan.csv", 1, "exception"),
    ("ValueError: no info in /data/inf/x", 1, "exception"),
    ("KeyError: 'nan'", 1, "exception"),
    ("FileNotFoundError: [Errno 2] No such file or directory: 'inf'", 1, "exception"),
    ("RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)", 1, "exception"),
]


@pytest.mark.parametrize(("error", "code", "kind"), ERRORS)
def test_an_error_is_of_the_class_that_its_last_line_says(error: str, code: int, kind: str) -> None:
    found = classify(raised(error), Evidence(code))
    assert (found.kind, found.message) == (kind, error if ": " in error or error.endswith(".") else f"{error}{UNSAID}")
    assert found.where == "train.py, line 7"


@pytest.mark.parametrize(
    ("error", "means", "helps"),
    [
        ("AssertionError: Torch not compiled with CUDA enabled", "a GPU that this task does not have", "is_available"),
        ("RuntimeError: Found no NVIDIA driver on your system.", "a GPU that this task does not have", "det slot list"),
        ("RuntimeError: No CUDA GPUs are available", "a GPU that this task does not have", "a pool with GPUs"),
        ("torch.AcceleratorError: CUDA error: invalid device ordinal", "a number that this task does not", "cuda:0"),
    ],
)
def test_a_gpu_that_is_not_there_is_said_with_what_helps(error: str, means: str, helps: str) -> None:
    """Regression: the card said `Torch not compiled with CUDA enabled` and to read the whole output."""
    found = classify(raised(error), Evidence(1))
    assert found.kind == "exception"
    assert means in found.message
    assert found.message.endswith(error)
    assert helps in found.helps


@pytest.mark.parametrize(
    ("texts", "evidence", "kind", "said"),
    [
        (["step 3", f"detlab: {LOST}"], Evidence(1), "exception", LOST),
        (["step 3"], Evidence(-9), "killed", "killed by SIGKILL"),
        (["step 3"], Evidence(137), "killed", "killed by SIGKILL"),
        (["step 3"], Evidence(-9, out_of_memory=True), "oom", "the task ran out of memory"),
        (["step 3", KERNEL], Evidence(-9), "oom", "the task ran out of memory"),
        (["terminate called after throwing an instance of 'std::bad_alloc'"], Evidence(-6), "oom", "memory"),
        (["Fatal Python error: Segmentation fault"], Evidence(-11), "killed", "killed by SIGSEGV"),
        (["bye"], Evidence(-15), "killed", "killed by SIGTERM"),
        (["bye"], Evidence(None), "killed", "its exit code is not known"),
        (["bye"], Evidence(3), "unknown", "exited with code 3"),
        (["bye"], Evidence(3, metric="loss", value=0.5), "unknown", "exited with code 3"),
        (["bye"], Evidence(3, metric="loss", value=math.nan), "nan", "'loss' had become nan"),
        (["bye"], Evidence(1, metric="loss", value=-math.inf), "nan", "'loss' had become -inf"),
        (["python3: can't open file '/w/no.py': [Errno 2] No such file"], Evidence(2), "config", "/w/no.py"),
    ],
)
def test_an_end_without_an_error_is_of_the_class_that_exit_code_and_metric_say(
    texts: list[str], evidence: Evidence, kind: str, said: str
) -> None:
    found = classify([RankLine(None, text) for text in texts], evidence)
    assert found.kind == kind
    assert said in found.message


@pytest.mark.parametrize(
    ("error", "kind"), [("RuntimeError: diverged, giving up", "nan"), ("KeyError: 'x'", "exception")]
)
def test_a_metric_that_is_no_number_explains_an_error_about_numbers_only(error: str, kind: str) -> None:
    assert classify(raised(error), Evidence(1, metric="loss", value=math.inf)).kind == kind


def test_a_handled_error_before_a_sigkill_is_not_its_cause() -> None:
    found = classify([*raised("ImportError: no fast kernels"), RankLine(None, "going on without")], Evidence(-9))
    assert (found.kind, found.message) == ("killed", "killed by SIGKILL")


def test_workers_without_shared_memory_have_run_out_of_memory() -> None:
    assert classify(raised(SHM), Evidence(1)).kind == "oom"


# --- several ranks

GLOO_CLOSED = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [::1]:4711"
)
GLOO_TIMEOUT = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting "
    "1800000ms for recv operation to complete"
)
NCCL_TIMEOUT = (
    "[rank0]:[E1123 08:00:00.000000000 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=81, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600005 "
    "milliseconds before timing out."
)
BARRIER = "RuntimeError: Rank 1 failed to pass monitoredBarrier in 30000 ms"
GATHER = "detlab.core.distributed.channel.DistributedError: rank 2 did not call gather() within 7200 s"
SUMMARY = """\
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-23_08:00:00
  host      : n1
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 4242)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 4242""".splitlines()


def test_the_rank_that_failed_is_named_and_not_the_one_that_fell_with_it() -> None:
    """The launcher saw the victim end first: the culprit was still writing a core file."""
    lines = [*raised(GLOO_CLOSED, 0), *raised("ValueError: bad batch", 1)]
    for told in (None, 0, 1):
        found = classify(lines, Evidence(1, rank=told))
        assert (found.rank, found.message) == (1, "ValueError: bad batch")
        assert found.log_tail == (*HEAD, "ValueError: bad batch")


def test_of_two_ranks_that_fail_by_themselves_the_first_counts() -> None:
    lines = [*raised("ValueError: a", 2), *raised("ValueError: b", 0)]
    assert failing_rank(lines, None) == 2
    assert failing_rank(lines, 0) == 0, "the launcher knows the times"


def test_the_rank_that_a_signal_ended_is_taken_from_torchruns_summary() -> None:
    lines = [
        RankLine(0, "fine"),
        RankLine(1, "fine too"),
        *raised(GLOO_CLOSED, 0),
        *(RankLine(None, text) for text in SUMMARY),
    ]
    found = classify(lines, Evidence(1))
    assert (found.kind, found.rank, found.signal) == ("killed", 1, "SIGKILL")
    assert found.log_tail == ("fine too",)


@pytest.mark.parametrize("kernel", [False, True])
def test_a_rank_that_the_kernel_ended_for_memory_is_told_apart_from_one_that_was_killed(kernel: bool) -> None:
    lines = [RankLine(1, "step 3"), *(RankLine(None, text) for text in SUMMARY)]
    lines += [RankLine(None, KERNEL)] if kernel else []
    assert classify(lines, Evidence(1, rank=1)).kind == ("oom" if kernel else "killed")


@pytest.mark.parametrize(
    ("lines", "size", "rank"),
    [
        (raised(GLOO_TIMEOUT, 0), 2, 1),
        ([RankLine(None, NCCL_TIMEOUT)], 2, 1),
        ([RankLine(0, NCCL_TIMEOUT), RankLine(1, "loading data")], None, 1),
        ([*raised(GLOO_TIMEOUT, 0), *raised(GLOO_TIMEOUT, 3), RankLine(1, "x")], 4, 1),
        (raised(BARRIER, 0), 4, 1),
        (raised(GATHER, 0), 4, 2),
        ([*raised(GLOO_TIMEOUT, 0), *raised(GLOO_TIMEOUT, 1)], 2, None),
    ],
)
def test_a_collective_that_one_rank_did_not_join_is_a_hang_of_that_rank(
    lines: list[RankLine], size: int | None, rank: int | None
) -> None:
    found = classify(lines, Evidence(1, rank=0, size=size))
    assert (found.kind, found.rank) == ("hang", rank)
    assert rank is None or f"{rank}" in found.message


def test_a_rank_that_failed_while_the_others_waited_has_not_hung() -> None:
    found = classify([*raised("ValueError: bad batch", 1), *raised(GLOO_TIMEOUT, 0)], Evidence(1, rank=0, size=2))
    assert (found.kind, found.rank, found.message) == ("exception", 1, "ValueError: bad batch")


def test_the_tail_of_a_rank_has_twenty_lines_and_no_other_ranks() -> None:
    lines = [RankLine(n % 2, f"line {n}") for n in range(100)]
    found = classify(lines, Evidence(1, rank=1))
    assert found.log_tail == tuple(f"line {n}" for n in range(61, 100, 2))


def test_hostile_text_stays_text_and_costs_little() -> None:
    hostile = "<img src=x onerror=alert(1)>\x1b[2J" + "(" * 16_000
    long = [
        "detlab: rank 1 (" + ") hangs: " * 1700,
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, " + "OpType=" * 2000,
        "nan-" * 4000,
        "rank 1, " * 2000,
    ]
    began = time.process_time()
    found = classify([*(RankLine(0, text) for text in long * 100), RankLine(0, hostile)], Evidence(1))
    assert time.process_time() - began < 5.0
    assert found.log_tail[-1] == hostile


# --- a rank that left

LEFT = RankLine(None, "detlab: rank 1 ended with exit code 0 1.2 s before rank 0 failed")
GLOO_RESET = (
    "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:30621: Connection reset by peer."
)


@pytest.mark.parametrize("lost", [GLOO_CLOSED, GLOO_RESET])
def test_a_rank_that_left_early_is_named_and_not_the_one_that_needed_it(lost: str) -> None:
    """Rank 1 called sys.exit(0), or skipped a backward: the card named rank 0's "Connection closed by peer"."""
    found = classify([RankLine(1, "finished"), *raised(lost, 0), LEFT], Evidence(1, rank=0, size=2))
    assert (found.kind, found.rank) == ("exception", 1)
    assert found.message.startswith("rank 1 ended with exit code 0 1.2 s before rank 0 failed, for want of it: ")
    assert "backward()" in found.helps
    assert found.log_tail == ("finished",)


def test_a_rank_that_had_ended_well_is_not_blamed_for_another_ones_own_error() -> None:
    found = classify([*raised("ValueError: saving failed", 0), LEFT], Evidence(1, rank=0, size=2))
    assert (found.rank, found.message) == (0, "ValueError: saving failed")
    plain = classify([RankLine(0, LEFT.text), *raised(GLOO_CLOSED, 0)], Evidence(1, rank=0, size=2))
    assert plain.rank == 0, "a rank cannot say it in the launcher's place"


def test_a_rank_that_ended_without_a_word_is_named() -> None:
    """`os._exit(3)`: the launcher saw it end first."""
    summary = [text.replace("exitcode  : -9", "exitcode  : 3 ") for text in SUMMARY]
    lines = [*raised(GLOO_CLOSED, 0), *(RankLine(None, text) for text in summary)]
    found = classify(lines, Evidence(1, rank=1, size=2))
    assert (found.rank, found.message) == (1, "exited with code 3")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            [
                "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
                "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 32 vs 12. Is there a"
                " distributed collective mismatch in your code?",
            ],
            "the ranks were not in the same collective operation: killed by SIGABRT",
        ),
        (
            ["terminate called without an active exception"],
            "the process ended while its threads still communicated with the other ranks: killed by SIGABRT",
        ),
    ],
)
def test_what_the_abort_of_a_rank_means_is_said(words: list[str], said: str) -> None:
    found = classify([*raised(GLOO_CLOSED, 0), *(RankLine(1, text) for text in words)], Evidence(-6, rank=1, size=2))
    assert found.rank == 1
    assert found.message.startswith(said)
    assert found.helps
