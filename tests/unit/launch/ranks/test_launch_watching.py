"""Whom the launcher's watch over ranks names, and whom it leaves alone."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from detlab.core.distributed.channel import DistributedError, RankLink
from detlab.core.distributed.heartbeat import LoopState, Pulse, place_of, waits_for_others
from detlab.launch.ranks.judging import HangVerdict, Sign, judge, judge_loops
from detlab.launch.ranks.watchdog import BUSY_FACTOR, DEFAULT_LIMIT, HangWatch, limit_of
from detlab.launch.ranks.watchdog_nodes import OtherNodes
from detlab.launch.taskdir import TaskDir

LIMIT = 100.0
INSIDE = Sign(0, "inside", 120.0, still=120.0, operation="all_reduce", host="n1", pid=10)
SLEEPS = Sign(1, "user", 119.0, still=119.0, where="train.py, line 9, in train", host="n1", pid=11)


def found(*signs: Sign, size: int | None = None) -> int | None:
    by_rank = {rank: replace(sign, rank=rank) for rank, sign in enumerate(signs)}
    verdict = judge(by_rank, size or len(by_rank), LIMIT, BUSY_FACTOR * LIMIT)
    return None if verdict is None else verdict.sign.rank


@pytest.mark.parametrize(
    ("signs", "rank"),
    [
        ((INSIDE, SLEEPS), 1),
        ((SLEEPS, INSIDE), 0),
        ((INSIDE, INSIDE, SLEEPS, INSIDE), 2),
        # Nobody has waited for the whole limit yet.
        ((replace(INSIDE, since=99.0), SLEEPS), None),
        ((SLEEPS, SLEEPS), None),
        # A long step or validation: it computes, reads or writes.
        ((INSIDE, replace(SLEEPS, still=0.0)), None),
        ((INSIDE, replace(SLEEPS, still=99.0)), None),
        # ... but not for ever.
        ((replace(INSIDE, since=401.0), replace(SLEEPS, since=BUSY_FACTOR * LIMIT, still=0.0)), 1),
        # It may wait for the other one, which works, by another way: a file, a store.
        ((INSIDE, SLEEPS, replace(SLEEPS, still=0.0)), None),
        # detlab itself lets it wait: the master is away, or the disk is full.
        ((INSIDE, replace(SLEEPS, state="detlab")), None),
        ((INSIDE, replace(SLEEPS, state="detlab", since=1e6)), None),
        # Its process is stopped: it says nothing, wherever it was, and uses nothing.
        ((INSIDE, replace(SLEEPS, silent=101.0)), 1),
        ((INSIDE, replace(SLEEPS, state="detlab", silent=101.0)), 1),
        ((INSIDE, replace(INSIDE, silent=101.0)), 1),
        # It says nothing, but computes: code in C that holds the interpreter's lock.
        ((INSIDE, replace(SLEEPS, silent=101.0, still=0.0)), None),
        # All wait: in the same operation that is a slow network, in different ones a mistake.
        ((INSIDE, INSIDE), None),
        ((INSIDE, replace(INSIDE, operation="barrier"), INSIDE), 1),
        ((INSIDE, replace(INSIDE, operation="barrier")), 1),
        ((INSIDE, replace(INSIDE, operation="barrier", since=99.0)), None),
        # One of them works on in threads, such as those that write a checkpoint.
        ((INSIDE, replace(INSIDE, operation="save", still=3.0)), None),
    ],
)
def test_a_rank_is_named_when_the_others_wait_and_it_does_nothing(signs: tuple[Sign, ...], rank: int | None) -> None:
    assert found(*signs) == rank


def test_without_a_limit_of_the_user_a_rank_at_work_is_left_alone_for_ever() -> None:
    busy = {0: replace(INSIDE, since=1e6), 1: replace(SLEEPS, rank=1, since=1e6, still=0.0)}
    assert judge(busy, 2, LIMIT) is None
    assert judge(busy, 2, LIMIT, BUSY_FACTOR * LIMIT) is not None


def test_with_a_rank_that_was_never_heard_nothing_is_said() -> None:
    assert found(INSIDE, SLEEPS, size=3) is None


def test_the_line_says_who_where_how_long_and_what_to_do() -> None:
    verdict = judge({0: INSIDE, 1: SLEEPS}, 2, LIMIT)
    assert verdict is not None
    assert verdict.line(LIMIT) == (
        "detlab: rank 1 (host n1, pid 11) hangs: for 119.0 s it has been running code outside of collective operations"
        " (train.py, line 9, in train), while rank 0 waits in all_reduce(). This attempt ends now, and the trial "
        "restarts from its last checkpoint. If the work is only slow, raise the limit of 100 s: DET_HANG_TIMEOUT in"
        " environment.environment_variables"
    )


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        *((None, DEFAULT_LIMIT), ("", DEFAULT_LIMIT), ("soon", DEFAULT_LIMIT), ("nan", DEFAULT_LIMIT), ("60", 60.0)),
        *(("0", None), ("-1", None), ("inf", None)),
    ],
)
def test_the_limit_is_a_number_of_seconds_or_none(value: str | None, limit: float | None) -> None:
    assert limit_of(value) == limit


# --- ranks in a training loop


def in_loop(
    batch: int = 7, phase: str = "backward", idle: float = LIMIT, *, silent: float = 0.0, waits: bool = True
) -> Sign:
    state = "inside" if waits else "user"
    return Sign(0, state, 0.0, silent=silent, host="n1", pid=77, phase=phase, batch=batch, idle=idle, limit=LIMIT)


def named(*signs: Sign) -> int | None:
    verdict = judge_loops({rank: replace(sign, rank=rank) for rank, sign in enumerate(signs)}, LIMIT)
    return None if verdict is None else verdict.sign.rank


def test_nobody_is_named_while_one_loop_makes_progress() -> None:
    assert named(in_loop(), in_loop(idle=LIMIT - 0.1, phase="train_batch", waits=False)) is None
    assert named() is None


def test_the_rank_in_the_trials_code_is_named_whether_it_computes_or_not() -> None:
    assert named(in_loop(), in_loop(phase="train_batch", waits=False), in_loop()) == 1
    assert named(in_loop(phase="data", waits=False), in_loop()) == 0


def test_a_rank_of_the_trials_code_that_waits_for_others_is_not_named() -> None:
    assert named(in_loop(phase="validation"), in_loop(phase="validation", waits=False)) == 1


def test_a_silent_process_is_named_before_all_others() -> None:
    assert named(in_loop(phase="train_batch", waits=False), in_loop(silent=LIMIT * 0.9)) == 1


def test_a_process_that_says_nothing_for_the_whole_limit_is_named_although_others_make_progress() -> None:
    assert named(in_loop(idle=0.0), in_loop(silent=LIMIT, idle=0.0)) == 1


def test_when_all_wait_the_one_furthest_behind_is_named() -> None:
    assert named(in_loop(8, "backward"), in_loop(7, "step")) == 1
    assert named(in_loop(7, "sync"), in_loop(7, "backward")) == 1
    assert named(in_loop(), in_loop()) == 0


def test_what_a_rank_last_said_grows_old() -> None:
    assert named(in_loop(idle=60.0, silent=40.0), in_loop()) == 0
    assert named(in_loop(idle=60.0, silent=39.0), in_loop()) is None


def test_the_line_of_a_loop_says_who_where_since_when_and_what_to_do() -> None:
    sign = replace(in_loop(12, "train_batch", 1800.4), rank=1, where="train.py, line 9, in train_batch", limit=1800.0)
    assert HangVerdict(sign).line(LIMIT) == (
        "detlab: rank 1 (host n1, pid 77) hangs: for 1800.4 s it has been in train_batch, at batch 12 (train.py, line "
        "9, in train_batch), while the others wait for it. This attempt ends now, and the trial restarts from its last "
        "checkpoint. If the work is only slow, raise the limit of 1800 s: pytorch.init(hang_timeout=…)"
    )
    stopped = HangVerdict(replace(sign, silent=3.0, limit=2.0, node="two")).line(LIMIT)
    assert "rank 1 (node two, host n1" in stopped
    assert "its process has been stopped or blocked for 3.0 s; it was last in train_batch, at batch 12" in stopped


def test_a_heartbeat_of_a_loop_tells_its_progress_and_its_limit(tmp_path) -> None:
    (tmp_path / "spool").mkdir()
    loop = LoopState()
    pulse = Pulse(tmp_path, 1, 2, math.inf, loop)
    loop.batch, loop.phase = 5, "validation"
    first = json.loads(pulse._look())
    assert (first["batch"], first["phase"], first["state"]) == (5, "validation", "user")
    assert math.isfinite(first["limit"])
    assert json.loads(pulse._look())["idle"] > 0
    loop.beat()
    assert json.loads(pulse._look())["idle"] == 0


def test_a_loop_waits_for_others_only_in_its_innermost_frames() -> None:
    assert not waits_for_others(sys._getframe())
    assert not waits_for_others(None)
    left, right = socket.socketpair()
    link = RankLink(left, b"key", serving=False)

    def wait() -> None:
        with contextlib.suppress(DistributedError):
            link.receive("x")

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        while (frame := sys._current_frames()[thread.ident or 0]).f_code.co_name != "_exactly":
            pass
        assert waits_for_others(frame)
        where = place_of(frame).where
        assert where is not None
        assert "test_launch_watching" in where
    finally:
        right.close()
        thread.join()
        left.close()


@pytest.mark.parametrize("ranks", ["while True: pass"], indirect=True)
def test_a_loop_is_judged_by_its_own_limit_and_only_with_all_ranks_in_it(ranks) -> None:
    ranks.watch = HangWatch(ranks.task, math.inf, lambda _: None, clock=lambda: ranks.now)
    said = []
    for idle in (1.0, 1.0, 5.0):
        ranks.now += 1.0
        ranks.beat += 1
        loop = {"batch": 3, "idle": idle, "limit": 4.0}
        ranks.say(0, "inside", phase="sync", **loop)
        ranks.say(1, "user", **({"phase": "train_batch", **loop} if len(said) > 0 else {}))
        verdict = ranks.watch.look()
        said.append(None if verdict is None else verdict.sign.rank)
    assert said == [None, None, 1]


# --- what ranks say


def test_a_pulse_says_what_the_main_thread_does(tmp_path) -> None:
    (tmp_path / "spool").mkdir()
    pulse = Pulse(tmp_path, 1, 2, 100.0)
    with ThreadPoolExecutor(1) as beside:
        looked = beside.submit(pulse._look).result()
    told = json.loads(looked)
    assert (told["rank"], told["size"], told["pid"], told["state"]) == (1, 2, os.getpid(), "user")
    assert "test_launch_watching.py" in told["where"]
    assert len(looked) == 4096


def all_reduce(entered: threading.Event, leave: threading.Event) -> None:
    entered.set()
    leave.wait()


def test_a_thread_in_a_collective_is_inside_it_until_it_moves() -> None:
    entered, leave = threading.Event(), threading.Event()
    names = {**globals(), "__name__": "torch.distributed.distributed_c10d"}
    code = type(all_reduce)(all_reduce.__code__, names)
    thread = threading.Thread(target=lambda: code(entered, leave))
    thread.start()
    try:
        entered.wait()
        frames = sys._current_frames()
        place = place_of(frames[thread.ident or 0])
        assert (place.state, place.operation) == ("inside", "all_reduce")
        assert place.key == place_of(sys._current_frames()[thread.ident or 0]).key
    finally:
        leave.set()
        thread.join()


# --- how the launcher hears them


class Ranks:
    """Two ranks, the second one a real process; time stands until it is moved."""

    def __init__(self, root, program: str) -> None:
        self.task = TaskDir(root)
        self.task.spool.mkdir()
        self.now, self.beat = 0.0, 0
        self.process = subprocess.Popen([sys.executable, "-c", program])
        self.watch = HangWatch(self.task, 10.0, lambda _: None, 40.0, clock=lambda: self.now)

    def say(self, rank: int, state: str, **more: object) -> None:
        told = {"rank": rank, "size": 2, "pid": self.process.pid, "host": "n1", "beat": self.beat, "state": state}
        told |= {"operation": "barrier", "since": self.now, "where": None, **more}
        (self.task.spool / f"pulse.{rank}").write_text(json.dumps(told))

    def look(self, second: str = "user") -> int | None:
        self.now += 1.0
        self.beat += 1
        self.say(0, "inside", pid=os.getpid())
        self.say(1, second)
        verdict = self.watch.look()
        return None if verdict is None else verdict.sign.rank


@pytest.fixture
def ranks(request, tmp_path):
    made = Ranks(tmp_path, request.param)
    yield made
    made.process.kill()
    made.process.wait()


@pytest.mark.parametrize("ranks", ["import time; time.sleep(60)"], indirect=True)
def test_a_process_that_sleeps_is_named_after_the_limit(ranks) -> None:
    threading.Event().wait(0.5)  # until it has started
    verdicts = [ranks.look() for _ in range(14)]
    assert verdicts[:10] == [None] * 10
    assert verdicts[-1] == 1


@pytest.mark.parametrize("ranks", ["import time; time.sleep(60)"], indirect=True)
def test_time_in_which_the_whole_task_was_frozen_does_not_count(ranks) -> None:
    threading.Event().wait(0.5)  # until it has started
    assert [ranks.look() for _ in range(8)] == [None] * 8
    ranks.now += 3 * 3600.0
    verdicts = [ranks.look() for _ in range(14)]
    assert verdicts[:10] == [None] * 10
    assert verdicts[-1] == 1


@pytest.mark.soak
@pytest.mark.parametrize("ranks", ["while True: pass"], indirect=True)
def test_a_process_that_computes_is_left_alone_for_four_times_the_limit(ranks) -> None:
    verdicts = []
    for _ in range(45):
        threading.Event().wait(0.1)
        verdicts.append(ranks.look())
    assert verdicts[:39] == [None] * 39
    assert verdicts[-1] == 1


@pytest.mark.parametrize("ranks", ["import time; time.sleep(60)"], indirect=True)
@pytest.mark.parametrize("text", ["", "[]", '{"rank": 1', '{"rank": "x"}', "[" * 4000, '{"rank": 1e999}'])
def test_a_pulse_that_cannot_be_read_says_nothing(ranks, text: str) -> None:
    for _ in range(5):
        ranks.look()
        ranks.now += 10
        (ranks.task.spool / "pulse.1").write_text(text)
        assert ranks.watch.look() is None
    (ranks.task.spool / "pulse.1").unlink()
    os.mkfifo(ranks.task.spool / "pulse.1")
    assert ranks.watch.look() is None


# --- over several nodes


class Board:
    """The master's part: what each node said last, answered as over the wire."""

    def __init__(self) -> None:
        self.said: dict[int, list[dict[str, object]]] = {}
        self.away = False
        self.age = 0.0

    def post(self, path: str, body: bytes, token: str) -> tuple[int, bytes]:
        assert (path, token) == ("task/ranks", "t")
        told = json.loads(body)
        if self.away:
            return 502, b"no master"
        self.said[told["node"]] = told["signs"]
        others = [
            sign | {"age": self.age} for node, signs in self.said.items() if node != told["node"] for sign in signs
        ]
        return 200, json.dumps({"signs": others}).encode()


class TwoNodes:
    """A rank on each of two nodes; the second one is a process that sleeps. Time stands until it is moved."""

    def __init__(self, root) -> None:
        self.board = Board()
        self.loop: dict[str, object] = {}
        self.now, self.beat = 0.0, 0
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        self.tasks, self.watches = [], []
        for number, name in enumerate(("one", "two")):
            task = TaskDir(root / name)
            task.spool.mkdir(parents=True)
            (root / name / "token").write_text("t")
            others = OtherNodes(task.root, name, number, self.board, 10.0)
            self.tasks.append(task)
            self.watches.append(HangWatch(task, 10.0, lambda _: None, 40.0, lambda: self.now, others))

    def say(self, rank: int, state: str, pid: int) -> None:
        told = {"rank": rank, "size": 2, "pid": pid, "host": "h", "beat": self.beat, "state": state}
        told |= {"operation": "all_reduce" if state == "inside" else "", "since": self.now, "where": None, **self.loop}
        (self.tasks[rank].spool / f"pulse.{rank}").write_text(json.dumps(told))

    def look(self, second: str = "user") -> list[int | None]:
        """Whom each of the two launchers names; the first rank always waits."""
        self.now += 1.0
        self.beat += 1
        self.say(0, "inside", os.getpid())
        self.say(1, second, self.process.pid)
        verdicts = [watch.look() for watch in self.watches]
        self.lines = [verdict.line(10.0) for verdict in verdicts if verdict is not None]
        return [None if verdict is None else verdict.sign.rank for verdict in verdicts]


@pytest.fixture
def nodes(tmp_path):
    made = TwoNodes(tmp_path)
    threading.Event().wait(0.5)  # until it has started
    yield made
    made.process.kill()
    made.process.wait()


def test_a_rank_of_another_node_is_named_with_its_node_by_its_own_launcher_first(nodes) -> None:
    verdicts = [nodes.look() for _ in range(14)]
    assert verdicts[:10] == [[None, None]] * 10
    first = next(found for found in verdicts if found != [None, None])
    assert first == [None, 1], "its own launcher, which has it print its stacks"
    assert nodes.lines[-1].startswith(f"detlab: rank 1 (node two, host h, pid {nodes.process.pid}) hangs: ")
    assert "while rank 0 waits in all_reduce()" in nodes.lines[-1]


def test_a_loop_over_two_nodes_is_judged_by_the_limit_that_its_ranks_tell(nodes) -> None:
    for watch in nodes.watches:
        watch._limit = watch._limit_outside = math.inf
    nodes.loop = {"phase": "train_batch", "batch": 4, "idle": 2.0, "limit": 5.0}
    assert [nodes.look() for _ in range(5)] == [[None, None]] * 5
    assert nodes.watches[0]._others.interval == 0.5
    nodes.loop |= {"idle": 6.0}
    assert [None, 1] in [nodes.look() for _ in range(3)]
    assert nodes.lines[-1].startswith(f"detlab: rank 1 (node two, host h, pid {nodes.process.pid}) hangs: for 6.0 s")


def test_a_rank_of_another_node_is_named_here_if_its_own_launcher_does_not(nodes) -> None:
    plain = nodes.watches[1].look
    nodes.watches[1].look = lambda: plain() and None  # it tells, and never judges
    verdicts = [nodes.look()[0] for _ in range(18)]
    assert verdicts[:14] == [None] * 14
    assert verdicts[-1] == 1
    assert "rank 1 (node two, host h" in nodes.lines[-1]


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["away", "old", "frozen"])
def test_without_fresh_word_of_the_other_node_nobody_is_named(nodes, trouble: str) -> None:
    nodes.board.away = trouble == "away"
    nodes.board.age = 60.0 if trouble == "old" else 0.0
    if trouble == "frozen":
        nodes.watches[1]._judges_from = 1e9  # it says nothing while its own clocks cannot be trusted
    assert [nodes.look() for _ in range(30)] == [[None, None]] * 30


def test_two_nodes_that_both_wait_in_the_same_operation_are_a_slow_network(nodes) -> None:
    assert [nodes.look("inside") for _ in range(30)] == [[None, None]] * 30


class Hears:
    """What a node hears of the others, each time it asks: the signs in `told`, as they are then."""

    node = "three"
    interval = 1.0

    def __init__(self) -> None:
        self.told: list[Sign] = []
        self.meanwhile = lambda: None

    def use_limit(self, limit: float) -> None:
        """It is told anew at each look."""

    def exchange(self, own: object) -> dict[int, Sign]:
        self.meanwhile()
        return {sign.rank: sign for sign in self.told}


class OneOfNodes:
    """The watch of a node with one rank of a trial; time stands until it is moved."""

    def __init__(self, root, size: int) -> None:
        self.others, self.task, self.size = Hears(), TaskDir(root), size
        self.task.spool.mkdir(parents=True)
        self.now, self.beat = 0.0, 0
        self.watch = HangWatch(self.task, 10.0, lambda _: None, clock=lambda: self.now, others=self.others)

    def look(self, *told: Sign, state: str | None = None, since: float = 0.0) -> int | None:
        """Whom it names a second later; its own rank says nothing without a state."""
        self.now += 1.0
        self.beat += 1
        self.others.told = list(told)
        if state is not None:
            said = {"rank": 0, "size": self.size, "pid": os.getpid(), "host": "h", "beat": self.beat, "state": state}
            said |= {"operation": "all_reduce", "since": since, "where": None}
            (self.task.spool / "pulse.0").write_text(json.dumps(said))
        verdict = self.watch.look()
        return None if verdict is None else verdict.sign.rank


@pytest.mark.parametrize("second", [replace(SLEEPS, operation=""), replace(INSIDE, operation="recv")])
def test_a_node_whose_own_ranks_say_nothing_names_nobody_on_the_others(tmp_path, second: Sign) -> None:
    node = OneOfNodes(tmp_path, 3)  # its rank computes outside the context, and the others wait for it
    told = (replace(INSIDE, rank=1), replace(second, rank=2))
    assert [node.look(*told) for _ in range(30)] == [None] * 30


def test_each_suspicion_of_a_rank_elsewhere_waits_for_its_own_watch_anew(tmp_path) -> None:
    node = OneOfNodes(tmp_path, 2)
    sleeps, works = replace(SLEEPS, since=150.0), replace(SLEEPS, since=150.0, still=0.0)
    for _ in range(3):  # each time it begins to work again before the watch has had its looks
        assert [node.look(sleeps, state="inside", since=20.0) for _ in range(4)] == [None] * 4
        assert [node.look(works, state="inside", since=20.0) for _ in range(20)] == [None] * 20
    assert [node.look(sleeps, state="inside", since=20.0) for _ in range(6)] == [None] * 4 + [1, 1]


def test_a_rank_elsewhere_that_has_come_meanwhile_is_suspected_anew(tmp_path) -> None:
    node = OneOfNodes(tmp_path, 2)
    came = replace(INSIDE, rank=1, operation="barrier")  # in another operation than ours
    node_says = [node.look(SLEEPS, state="inside", since=20.0) for _ in range(4)]
    node.now += 1.0  # the looks of the first suspicion are over now
    node.watch._seen[0].mark = -100.0  # our rank does nothing but wait, either
    node_says += [node.look(came, state="inside", since=20.0) for _ in range(4)]
    assert node_says == [None] * 8


def test_a_task_frozen_while_it_heard_of_the_others_begins_anew(tmp_path) -> None:
    node = OneOfNodes(tmp_path, 2)
    waits = replace(INSIDE, rank=1, since=1.0, still=1.0)
    assert [node.look(waits, state="user") for _ in range(5)] == [None] * 5

    def freeze() -> None:
        node.now += 3 * 3600.0
        node.others.meanwhile = lambda: None

    node.others.meanwhile = freeze
    long = replace(waits, since=3 * 3600.0, still=3 * 3600.0)
    said = [node.look(long, state="user", since=3 * 3600.0) for _ in range(10)]
    assert said == [None] * 10
