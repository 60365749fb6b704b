"""What the warm pool may become, and when there is none: the parts without a process."""

import shlex
import subprocess
from pathlib import Path

import pytest

from detlab.launch.program import StartCold, check_environment, plain_words, read_program
from detlab.launch.warm_wire import ForkRequest
from detlab.warm.fresh import physical_cores
from detlab.warm.preload import thread_count
from detlab.warm.title import Title, packed
from detlab_agent.runtimes.warm_pool import MEMORY_TO_START, WarmPool, free_memory, zygote_environment


@pytest.mark.parametrize(
    "line",
    [
        "python3 train.py",
        "  python3\ttrain.py   --lr 0.1 ",
        """python3 train.py 'a b' "c d" e'f'"g" '' --x='{"a": [1, *]}'""",
        "python3 -m package.train +x=@y,%z:1",
    ],
)
def test_a_plain_line_is_split_as_a_shell_splits_it(line):
    words = plain_words(line)
    assert words == shlex.split(line)
    shown = subprocess.run(["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True).stdout
    assert shown.split("\n")[:-1] == words


@pytest.mark.parametrize(
    "line",
    [
        "python3 train.py && true",
        "python3 train.py; true",
        "python3 train.py > log",
        "python3 train.py | tee log",
        "python3 train.py $LR",
        'python3 train.py "$LR"',
        "python3 train.py `date`",
        'python3 train.py "a\\b"',
        "python3 train.py *.txt",
        "python3 train.py ~/data",
        "python3 train.py {a,b}",
        "python3 train.py # note",
        "python3 train.py &",
        "(python3 train.py)",
        "python3 train.py\npython3 again.py",
        "python3 'train.py",
        "python3 a\\ b.py",
        "! python3 train.py",
    ],
)
def test_a_line_with_work_for_a_shell_is_not_split(line):
    assert plain_words(line) is None
    with pytest.raises(StartCold, match="shell"):
        read_program(line)


@pytest.mark.parametrize(
    ("entrypoint", "found"),
    [
        (["python3", "train.py", "-m", "x"], ("script", "train.py", ("-m", "x"))),
        (["/opt/env/bin/python3.11", "-u", "-m", "pkg", "-u"], ("module", "pkg", ("-u",))),
        (["python", "-c", "print(1)", "-m"], ("code", "print(1)", ("-m",))),
        ("python3 dir/train.py --lr 1", ("script", "dir/train.py", ("--lr", "1"))),
    ],
)
def test_a_program_is_read(entrypoint, found):
    program = read_program(entrypoint)
    assert (program.kind, program.target, program.arguments) == found
    assert program.shell == isinstance(entrypoint, str)


@pytest.mark.parametrize(
    ("entrypoint", "why"),
    [
        ("", "no Python"),
        (["bash", "run.sh"], "no Python"),
        ("LR=1 python3 train.py", "no Python"),
        (["python2", "train.py"], "no Python"),
        (["pythonic", "train.py"], "no Python"),
        (["python3"], "without a program"),
        (["python3", "-"], "without a program"),
        (["python3", "-m"], "without a program"),
        (["python3", "-O", "train.py"], "-O"),
        (["python3", "-Wignore", "train.py"], "-W"),
        (["python3", "-m", "detlab.launch.torch_distributed", "train.py"], "interpreters of its own"),
        (["python3", "-m", "torch.distributed.run", "train.py"], "interpreters of its own"),
    ],
)
def test_anything_else_starts_cold(entrypoint, why):
    with pytest.raises(StartCold, match=why):
        read_program(entrypoint)


def test_what_libraries_read_when_they_are_loaded_must_be_the_same():
    had = {"LANG": "C.UTF-8", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    check_environment({**had, "OMP_NUM_THREADS": "4", "LR": "1", "DET_TRIAL_ID": "3", "CUDA_VISIBLE_DEVICES": ""}, had)
    check_environment({"LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}, had)
    for name in ("PYTHONPATH", "PYTHONHASHSEED", "LD_PRELOAD", "MKL_NUM_THREADS", "TORCH_LOGS", "LC_ALL", "TZ"):
        with pytest.raises(StartCold, match=name):
            check_environment({**had, name: "1"}, had)
    with pytest.raises(StartCold, match="LANG"):
        check_environment({**had, "LANG": "de_DE.UTF-8"}, had)
    for threads in ("0", "2,1", "", "many"):
        with pytest.raises(StartCold, match="OMP_NUM_THREADS"):
            check_environment({**had, "OMP_NUM_THREADS": threads}, had)


def test_what_does_not_fit_into_the_process_table_is_left_out_whole():
    assert packed([b"a=1", b"b=2222222222", b"c=3"], 10) == b"a=1\0c=3\0\0\0"
    assert packed([], 3) == b"\0\0\0"


def test_the_kernel_tells_where_it_reads_the_command():
    title = Title.find()
    assert title.command_room == len(Path("/proc/self/cmdline").read_bytes())
    assert title.environment_room >= len(Path("/proc/self/environ").read_bytes())
    assert thread_count() >= 1
    assert physical_cores() >= 1


def test_a_request_comes_through_as_it_was():
    request = ForkRequest("/d", {"A": "é"}, ["python3"], 5, 6, (7,), ("/a",), ("/b",))
    assert ForkRequest.decode(request.encode()) == request


def test_a_zygote_has_nothing_of_its_agents_environment():
    env = zygote_environment({"SECRET": "s", "DET_TOKEN": "t", "LANG": "C", "PYTHONPATH": "/mine", "HOME": "/root"})
    assert env["LANG"] == "C"
    assert env["OMP_NUM_THREADS"] == "1"
    assert not {"SECRET", "DET_TOKEN", "PYTHONPATH"} & set(env)
    assert env["HOME"] == "/nonexistent"


def test_no_zygote_is_kept_where_memory_is_short():
    pool = WarmPool({}, memory=lambda: MEMORY_TO_START - 1)
    pool.start()
    assert pool.pid is None
    assert not pool.ready
    assert pool.fork(ForkRequest("/d", {}, []), 1, 2) is None
    pool.close()
    assert free_memory() > 0


def test_a_zygote_that_is_there_is_given_up_when_memory_gets_short():
    free = [MEMORY_TO_START]
    pool = WarmPool({}, memory=lambda: free[0])
    pool.start()
    try:
        assert pool.pid is not None
        free[0] = 0
        assert not pool.ready
        assert pool.pid is None
    finally:
        pool.close()
