"""The root cause on a card's title, from tracebacks that real programs printed: chains, groups, workers, crashes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
import traceback
from pathlib import Path

import pytest

from detlab_hub.services.failures.diagnosis import Diagnosis, Evidence, classify, is_lasting
from detlab_hub.services.failures.rank_faults import RankLine

CAUSES = {
    # name: (program, what the message must begin with, what else it must hold, line of `where`)
    "cause": (
        """
        def load():
            return {}["lr"]
        try:
            load()
        except KeyError as error:
            raise RuntimeError("cannot build the model") from error
        """,
        "KeyError: 'lr'",
        ["raised again as RuntimeError: cannot build the model"],
        3,
    ),
    "chained causes": (
        """
        def a(): raise OSError("disk is gone")
        def b():
            try: a()
            except OSError as error: raise ValueError("no batch") from error
        try: b()
        except ValueError as error: raise RuntimeError("training failed") from error
        """,
        "OSError: disk is gone",
        ["ValueError: no batch"],
        2,
    ),
    "context": (
        """
        try:
            {}["lr"]
        except KeyError:
            int("x")
        """,
        "ValueError: invalid literal for int() with base 10: 'x'",
        ["while handling KeyError: 'lr'"],
        5,
    ),
    "context suppressed": (
        """
        try:
            {}["lr"]
        except KeyError:
            raise SystemError("no lr given") from None
        """,
        "SystemError: no lr given",
        [],
        5,
    ),
    "memory in a handler": (
        """
        try:
            raise MemoryError("too much")
        except MemoryError:
            raise ValueError("cannot go on")
        """,
        "ValueError: cannot go on",
        ["while handling MemoryError: too much"],
        5,
    ),
    "group": (
        """
        raise ExceptionGroup("several", [ValueError("a"), ExceptionGroup("inner", [KeyError("b"), TypeError("c")])])
        """,
        "ExceptionGroup: several (2 sub-exceptions): ValueError: a; KeyError: 'b'; TypeError: c",
        [],
        2,
    ),
    "group of one": (
        """
        def sample(): raise ValueError("bad sample")
        try:
            sample()
        except ValueError as error:
            raise ExceptionGroup("workers", [error])
        """,
        "ValueError: bad sample (in ExceptionGroup)",
        [],
        2,
    ),
    "members with causes": (
        """
        def member():
            try: {}["x"]
            except KeyError as error: raise OSError("no file") from error
        found = []
        try: member()
        except OSError as error: found.append(error)
        raise ExceptionGroup("g", [*found, ValueError("two")])
        """,
        "ExceptionGroup: g (2 sub-exceptions): KeyError: 'x'; raised again as OSError: no file; ValueError: two",
        [],
        3,
    ),
    "task group": (
        """
        import asyncio
        async def bad(n): raise ValueError(f"task {n}")
        async def main():
            async with asyncio.TaskGroup() as group:
                group.create_task(bad(1))
                group.create_task(bad(2))
        asyncio.run(main())
        """,
        "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions): ValueError: task 1; ValueError: task 2",
        [],
        3,
    ),
    "process pool": (
        """
        from concurrent.futures import ProcessPoolExecutor
        def work(n): raise ValueError(f"bad file {n}")
        if __name__ == "__main__":
            with ProcessPoolExecutor(1) as pool:
                pool.submit(work, 7).result()
        """,
        "ValueError: bad file 7",
        [],
        3,
    ),
    "multiprocessing pool": (
        """
        from multiprocessing import Pool
        def work(n): return {}[n]
        if __name__ == "__main__":
            with Pool(1) as pool:
                pool.map(work, [7])
        """,
        "KeyError: 7",
        [],
        3,
    ),
    "killed process of a pool": (
        """
        import os
        from concurrent.futures import ProcessPoolExecutor
        def work(n): os.kill(os.getpid(), 9)
        if __name__ == "__main__":
            with ProcessPoolExecutor(1) as pool:
                pool.submit(work, 7).result()
        """,
        "a process of the pool was killed, or crashed: ",
        ["BrokenProcessPool"],
        7,
    ),
    "callback of a library": (
        """
        import functools
        def loss(total, x): return total + undefined_name
        functools.reduce(loss, [1, 2])
        """,
        "NameError: name 'undefined_name' is not defined",
        [],
        3,
    ),
    "several lines": (
        'raise ValueError("this DataLoader cannot work:\\n\\n  - no sampler\\n  - no batch")',
        "ValueError: this DataLoader cannot work: - no sampler - no batch",
        [],
        1,
    ),
    "two sentences": (
        'raise ValueError("the mask is empty\\ncheck the labels")',
        "ValueError: the mask is empty; check the labels",
        [],
        1,
    ),
    "first line empty": ('raise ValueError("\\nshapes differ")', "ValueError: shapes differ", [], 1),
    "notes": (
        """
        error = ValueError("bad batch")
        error.add_note("in file 7.png")
        raise error
        """,
        "ValueError: bad batch; in file 7.png",
        [],
        4,
    ),
    "no message": ("raise RuntimeError", "RuntimeError (it has no message), raised by: raise RuntimeError", [], 1),
    "bare assert": (
        "x, y = (2,), (3,)\nassert x == y",
        "AssertionError (it has no message), raised by: assert x == y",
        [],
        2,
    ),
    "other languages": (
        'class Ошибка(Exception): pass\nraise Ошибка("нет данных: 数据缺失")',
        "Ошибка: нет данных: 数据缺失",
        [],
        2,
    ),
    "local class": (
        "def f():\n    class Bad(Exception): pass\n    raise Bad('x')\nf()",
        "f.<locals>.Bad: x",
        [],
        3,
    ),
    "__str__ that raises": (
        """
        class Odd(Exception):
            def __str__(self): raise RuntimeError("no text")
        raise Odd()
        """,
        "Odd: <exception str() failed>",
        [],
        4,
    ),
    "syntax": ("x = = 1", "SyntaxError: invalid syntax", [], 1),
    "destructor after it": (
        """
        class Loader:
            def __del__(self): raise OSError("closing failed")
        kept = Loader()
        raise ValueError("bad batch")
        """,
        "ValueError: bad batch",
        [],
        5,
    ),
    "logged before it": (
        """
        import logging
        try: {}["x"]
        except KeyError: logging.exception("going on")
        raise ValueError("bad batch")
        """,
        "ValueError: bad batch",
        [],
        5,
    ),
    "markup": ('raise ValueError("<b>x</b>\\x1b[2J")', "ValueError: <b>x</b>\x1b[2J", [], 1),
    "sys.exit with a reason": (
        'import sys\nprint("step 3")\nsys.exit("no data in /data/train")',
        "exited with code 1; last line of its errors: no data in /data/train",
        [],
        None,
    ),
    "sys.exit with several lines": (
        'import sys\nsys.exit("cannot start:\\n  - no data\\n  - no labels")',
        "exited with code 1; last line of its errors: cannot start: - no data - no labels",
        [],
        None,
    ),
    "argparse": (
        'import argparse\nparser = argparse.ArgumentParser("train.py")\nparser.parse_args(["--no-such"])',
        "exited with code 2; last line of its errors: train.py: error: unrecognized arguments: --no-such",
        [],
        None,
    ),
    "os._exit": ("import os\nprint('step 3', flush=True)\nos._exit(3)", "exited with code 3", ["step 3"], None),
    "segmentation fault": (
        "import ctypes\ndef crash():\n    ctypes.string_at(0)\ncrash()",
        "killed by SIGSEGV: a crash in native code (segmentation fault)",
        [],
        3,
    ),
    "segmentation fault after a handled error": (
        """
        import ctypes, traceback
        try: {}["x"]
        except KeyError: traceback.print_exc()
        ctypes.string_at(0)
        """,
        "killed by SIGSEGV: a crash in native code (segmentation fault)",
        [],
        5,
    ),
    "bus error": (
        "import os, signal\nos.kill(os.getpid(), signal.SIGBUS)",
        "killed by SIGBUS: a bus error: shared memory (/dev/shm), or a file mapped into memory",
        [],
        2,
    ),
    "illegal instruction": (
        "import os, signal\nos.kill(os.getpid(), signal.SIGILL)",
        "killed by SIGILL: an illegal instruction: a library was built for another CPU",
        [],
        2,
    ),
    "C++ exception": (
        """
        import ctypes
        thrown = ctypes.CDLL("libstdc++.so.6")._ZSt20__throw_length_errorPKc
        thrown.argtypes = [ctypes.c_char_p]
        thrown(b"the vector is too long")
        """,
        "killed by SIGABRT: native code gave up (abort): C++ exception std::length_error: the vector is too long",
        [],
        5,
    ),
}
KINDS = {
    **dict.fromkeys(("process pool", "cause"), "exception"),
    **dict.fromkeys(("sys.exit with a reason", "argparse", "os._exit", "sys.exit with several lines"), "unknown"),
    **dict.fromkeys(("segmentation fault", "bus error", "illegal instruction", "C++ exception"), "killed"),
    "killed process of a pool": "killed",
    "segmentation fault after a handled error": "killed",
    "memory in a handler": "oom",
}


def run(folder: Path, program: str) -> Diagnosis:
    """Run a program as a task's entrypoint is run, and return the diagnosis of its output."""
    (folder / "train.py").write_text(textwrap.dedent(program), encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        env={"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1", "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    lines = [RankLine(None, text, "stdout") for text in ended.stdout.split("\n")[:-1]]
    lines += [RankLine(None, text, "stderr") for text in ended.stderr.split("\n")[:-1]]
    return classify(lines, Evidence(ended.returncode), allocation_id="a")


@pytest.mark.parametrize("name", CAUSES)
def test_the_title_says_the_root_cause(tmp_path: Path, name: str) -> None:
    program, begins, holds, line = CAUSES[name]
    folder = tmp_path / "a" / "work"
    folder.mkdir(parents=True)
    found = run(folder, program)
    assert found.message.startswith(begins), found
    for words in holds:
        assert words in found.message
    assert found.where == (None if line is None else f"train.py, line {line}")
    assert found.kind == KINDS.get(name, "exception")


def test_a_library_that_is_missing_below_another_error_is_not_tried_again(tmp_path: Path) -> None:
    program = "try:\n    import no_such\nexcept ImportError as e:\n    raise RuntimeError('no model') from e"
    (tmp_path / "work").mkdir()
    found = run(tmp_path / "work", program)
    assert found.kind == "import"
    assert is_lasting(found.message)


LOADERS = {
    "ValueError": (
        'raise ValueError("bad image 7.png")',
        "ValueError: bad image 7.png (in DataLoader worker process 0)",
    ),
    "KeyError": ('{}["label"]', "KeyError: 'label' (in DataLoader worker process 0)"),
    "exception with arguments": (
        'b"\\xff".decode()',
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte (in DataLoader",
    ),
    "cause": (
        'try: {}["label"]\n        except KeyError as e: raise OSError("no sample") from e',
        "KeyError: 'label' (in DataLoader worker process 0); raised again as OSError: no sample",
    ),
    "SIGKILL": ("os.kill(os.getpid(), 9)", "a worker process of the DataLoader was killed, most often because"),
    "SIGSEGV": ("os.kill(os.getpid(), 11)", "a worker process of the DataLoader crashed in native code"),
    "SIGBUS": ("os.kill(os.getpid(), 7)", "shared memory (/dev/shm) is too small for the DataLoader's workers: "),
    "os._exit": ("os._exit(3)", "a worker process of the DataLoader ended without an exception: "),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADERS)
def test_what_happened_in_a_worker_of_a_data_loader_is_the_title(tmp_path: Path, name: str) -> None:
    """Was "Caught ValueError in DataLoader worker process 0." or "exited unexpectedly"."""
    pytest.importorskip("torch")
    does, begins = LOADERS[name]
    program = f"""
import os
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self): return 4
    def __getitem__(self, index):
        {does}

if __name__ == "__main__":
    for batch in DataLoader(Data(), num_workers=1): pass
"""
    folder = tmp_path / "a" / "work"
    folder.mkdir(parents=True)
    found = run(folder, program)
    assert found.message.startswith(begins), found
    assert found.where is not None
    assert "oom" not in found.kind or name == "SIGBUS"
    assert found.helps or not name.startswith(("SIG", "os"))


@pytest.mark.slow
def test_the_error_of_a_spawned_process_is_the_title(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """
import torch.multiprocessing as mp

def train(rank):
    if rank == 1: {}["x"]

if __name__ == "__main__":
    mp.spawn(train, nprocs=2)
"""
    folder = tmp_path / "a" / "work"
    folder.mkdir(parents=True)
    found = run(folder, program)
    assert (found.message, found.where) == ("KeyError: 'x' (in process 1)", "train.py, line 5")


def test_text_that_looks_like_a_traceback_stays_text_and_costs_little() -> None:
    texts = [
        *[
            "  + Exception Group Traceback (most recent call last):",
            "  | A: b",
            "  +-+---------------- 1 ----------------",
        ],
        *["    | Exception Group Traceback (most recent call last):" for _ in range(100)],
        *["    +-+---------------- 1 ----------------" for _ in range(100)],
        *[f"{' ' * n}+-+---------------- 1 ----------------" for n in range(2, 300)],
        "Traceback (most recent call last):" * 100,
        'File "' * 3000,
        "a." * 4000 + "E: x",
        "Caught " + "in " * 3000,
        "terminate called after throwing an instance of '" * 400,
    ]
    began = time.process_time()
    found = classify([RankLine(0, text) for text in texts * 3], Evidence(1, rank=0))
    assert time.process_time() - began < 5.0
    assert found.rank == 0


def test_a_title_is_bounded() -> None:
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: x:", *["y" * 900] * 50]
    assert len(classify([RankLine(None, text) for text in lines], Evidence(1)).message) <= 2000


def _causes_in_groups(levels: int) -> Exception:
    """Return an error raised from a group, whose member was raised from a group, and so on."""
    try:
        if levels == 0:
            raise ValueError("the first")
        try:
            raise ExceptionGroup("g", [_causes_in_groups(levels - 1)])
        except ExceptionGroup as group:
            raise RuntimeError(f"level {levels}") from group
    except (RuntimeError, ValueError) as error:
        return error


def test_groups_in_causes_in_groups_cost_little() -> None:
    printed = traceback.TracebackException.from_exception(_causes_in_groups(20), max_group_depth=100)
    begun = time.process_time()
    found = classify([RankLine(0, text, "stderr") for text in "".join(printed.format()).splitlines()], Evidence(1, 0))
    assert time.process_time() - begun < 1.5
    assert found.message.startswith("ValueError: the first (in ExceptionGroup)")


def test_groups_in_groups_are_read_to_a_depth() -> None:
    lines = ["  + Exception Group Traceback (most recent call last):", "  | ExceptionGroup: g (1 sub-exception)"]
    for level in range(190):
        lines += [f"  {'  ' * level}+-+---------------- 1 ----------------", f"    {'  ' * level}| ExceptionGroup: h"]
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(500)
    try:
        found = classify([RankLine(0, text, "stderr") for text in lines], Evidence(1, 0))
    finally:
        sys.setrecursionlimit(before)
    assert found.kind == "exception"


@pytest.mark.parametrize(
    "text",
    [
        "[rank{}]: Traceback (most recent call last):",
        "detlab: rank {} (no report) hangs: for 9 s. This attempt ends",
        "Rank {} failed to pass monitoredBarrier",
        'Traceback (most recent call last):\n  File "train.py", line {}, in f\nValueError: x',
        "Root Cause (first observed failure):\n  rank : {}\n  exitcode : {}",
    ],
)
@pytest.mark.parametrize("digits", [900, 15_000])
def test_numbers_of_many_digits_in_output_are_no_ranks(text: str, digits: int) -> None:
    lines = text.replace("{}", "1" * digits).split("\n")
    found = classify([RankLine(None, line, "stderr") for line in lines], Evidence(1))
    assert found.rank is None or found.rank < 10**9
