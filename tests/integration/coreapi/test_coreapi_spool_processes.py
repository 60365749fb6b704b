"""Several processes append to one spool, and some are killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import textwrap
from typing import Any

from detlab.core.metrics.spool import Spool

WRITER = """
import os, sys
from pathlib import Path
from detlab.core.metrics.spool import Spool
spool = Spool(Path(os.environ["DET_TASK_DIR"]) / "spool")
print("ready", flush=True)
for number in range(int(os.environ["COUNT"])):
    spool.append("status", {"status": os.environ["NAME"] + ":" + str(number) + "x" * (number % 7 * 100)})
"""


def numbers(task: Any) -> list[int]:
    return [record["seq"] for record in task.records()]


def test_four_processes_number_without_gap_or_double(task: Any) -> None:
    writers = [task.start(WRITER, NAME=f"w{index}", COUNT="250") for index in range(4)]
    for writer in writers:
        assert writer.communicate(timeout=60)[0].strip() == "ready"
        assert writer.returncode == 0
    assert numbers(task) == list(range(1, 1001))
    for index in range(4):  # each writer's own records are in its order
        mine = [
            int(r["status"].strip("x").split(":")[1]) for r in task.records() if r["status"].startswith(f"w{index}:")
        ]
        assert mine == list(range(250))


def test_killed_writers_leave_no_gap_no_double_and_no_torn_line(task: Any) -> None:
    rng = random.Random(1)
    for round_ in range(4):
        writers = [task.start(WRITER, NAME=f"r{round_}w{index}", COUNT="100000") for index in range(2)]
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            with contextlib.suppress(subprocess.TimeoutExpired):  # it still writes: that is the point
                writer.wait(timeout=rng.uniform(0.005, 0.1))
            os.kill(writer.pid, signal.SIGKILL)
        for writer in writers:
            writer.communicate()
    Spool(task.root / "spool").append("status", {"status": "last"})
    found = numbers(task)
    assert len(found) > 50
    assert found == list(range(1, len(found) + 1))


def test_a_writer_killed_between_half_a_line_and_its_end(task: Any) -> None:
    code = """
    import os, signal
    from pathlib import Path
    from detlab.core.metrics import spool as _spool
    def half(fd, line, at):
        os.write(fd, line[: len(line) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    spool = _spool.Spool(Path(os.environ["DET_TASK_DIR"]) / "spool")
    spool.append("status", {"status": "whole"})
    _spool.Spool._write = staticmethod(half)
    spool.append("status", {"status": "torn"})
    """
    for _ in range(2):
        assert task.run(code)[0] == -signal.SIGKILL
    Spool(task.root / "spool").append("status", {"status": "after"})
    assert [(r["seq"], r["status"]) for r in task.records()] == [(1, "whole"), (2, "whole"), (3, "after")]


def test_a_writer_killed_before_it_noted_the_number(task: Any) -> None:
    code = """
    import os, signal
    from pathlib import Path
    from detlab.core.metrics import spool as _spool
    spool = _spool.Spool(Path(os.environ["DET_TASK_DIR"]) / "spool")
    spool.append("status", {"status": "one"})
    _spool.Spool._write_seq = lambda self, seq: os.kill(os.getpid(), signal.SIGKILL)
    spool.append("status", {"status": "two"})
    """
    assert task.run(code)[0] == -signal.SIGKILL
    assert Spool(task.root / "spool").append("status", {"status": "three"}) == 3
    assert numbers(task) == [1, 2, 3]


def test_a_forked_writer_and_its_parent_take_turns(task: Any) -> None:
    """A fork has its parent's open lock: shared, it would order nobody."""
    code = """
        import os
        from pathlib import Path
        from detlab.core.metrics.spool import Spool
        spool = Spool(Path(os.environ["DET_TASK_DIR"]) / "spool")
        spool.append("status", {"status": "before the forks"})
        children = []
        for name in "abc":
            if not (child := os.fork()):
                for number in range(200):
                    spool.append("status", {"status": f"{name}{number}"})
                os._exit(0)
            children.append(child)
        for number in range(200):
            spool.append("status", {"status": f"parent{number}"})
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
        """
    assert task.run(code)[0] == 0
    records = task.records()
    assert [record["seq"] for record in records] == list(range(1, 802))
    for name in ("a", "b", "c", "parent"):
        own = [record["status"] for record in records if record["status"] in {f"{name}{n}" for n in range(200)}]
        assert own == [f"{name}{number}" for number in range(200)]


def test_the_threads_of_a_forked_process_report_in_turn(task: Any) -> None:
    """The first of them opened the files anew, without a lock, while the others used them."""
    code = """
        import os, sys, threading
        from pathlib import Path
        from detlab.core.metrics.spool import Spool
        spool = Spool(Path(os.environ["DET_TASK_DIR"]) / "spool")
        spool.append("status", {"status": "before the forks"})
        def report():
            together.wait()
            try:
                spool.append("status", {"status": "child"})
            except BaseException as error:
                failed.append(error)
        for _ in range(60):
            if not (child := os.fork()):
                sys.setswitchinterval(1e-6)
                failed, together = [], threading.Barrier(8)
                threads = [threading.Thread(target=report) for _ in range(8)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                os._exit(len(failed))
            assert os.waitpid(child, 0)[1] == 0
        """
    assert task.run(code)[0] == 0
    assert numbers(task) == list(range(1, 482))


def test_a_worker_that_outlives_a_training_killed_within_a_report_does_not_hold_its_lock(task: Any) -> None:
    code = """
        import fcntl, os, signal
        from pathlib import Path
        from detlab.core.metrics.spool import Spool
        folder = Path(os.environ["DET_TASK_DIR"]) / "spool"
        lives, ends = os.pipe()
        if not (training := os.fork()):
            spool = Spool(folder)
            spool.append("status", {"status": "a"})
            forked, tells = os.pipe()
            if not os.fork():  # loads data, and reports nothing
                os.close(ends)
                os.write(tells, b".")
                signal.alarm(30)
                signal.pause()
            os.read(forked, 1)
            fcntl.flock(spool._files.lock, fcntl.LOCK_EX)  # as in the midst of a report
            os.kill(os.getpid(), signal.SIGKILL)
        os.close(ends)
        os.read(lives, 1)
        os.waitpid(training, 0)
        lock = os.open(folder / "metrics.lock", os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        """
    process = task.start("import os; os.setsid()\n" + textwrap.dedent(code))
    try:
        assert process.wait(timeout=60) == 0, process.stdout.read()
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the worker
        process.stdout.close()
