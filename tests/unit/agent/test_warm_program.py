"""What the warm pool may become, and when there is none: the parts without a process."""

import json
import mmap
import os
import select
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detlab.launch.host import procfs
from detlab.launch.python_program import StartCold, check_environment, plain_words, read_program, why_cold
from detlab.launch.warm_wire import ForkRequest
from detlab.warm.fresh import physical_cores
from detlab.warm.hugepages import large_ranges, use_large_pages
from detlab.warm.preload import noting_variables, thread_count
from detlab.warm.title import Title, packed
from detlab_agent.capacity import free_memory
from detlab_agent.runtimes.process import warm_pool
from detlab_agent.runtimes.process.warm_pool import MEMORY_TO_START, WarmPool, zygote_environment


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
        ("", "not a Python"),
        (["bash", "run.sh"], "not a Python"),
        ("LR=1 python3 train.py", "not a Python"),
        (["python2", "train.py"], "not a Python"),
        (["pythonic", "train.py"], "not a Python"),
        (["python3"], "without a program"),
        (["python3", "-"], "without a program"),
        (["python3", "-m"], "without a program"),
        (["python3", "-O", "train.py"], "-O"),
        (["python3", "-Wignore", "train.py"], "-W"),
        (["python3", "train.pyz"], "not a .py file"),
        (["python3", "folder/train.zip"], "not a .py file"),
        (["python3", "train.pyc"], "not a .py file"),
        (["python3", "folder"], "not a .py file"),
        ("python3 train.pyz --lr 1", "not a .py file"),
        (["python3", "-m", "detlab.launch.torch_distributed", "train.py"], "its own interpreters"),
        (["python3", "-m", "torch.distributed.run", "train.py"], "its own interpreters"),
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


def test_a_variable_that_was_looked_up_during_the_imports_must_be_the_same(monkeypatch):
    monkeypatch.delenv("SYMPY_DEBUG", raising=False)
    with noting_variables() as read:
        os.environ.get("SYMPY_DEBUG")
        "CXX" in os.environ  # noqa: B015  (looked up)
        os.getenv("HOME")
    os.environ.get("LATER")
    assert read == {"SYMPY_DEBUG", "CXX", "HOME"}
    had = {"HOME": "/nonexistent"}
    check_environment({"HOME": "/home/alice", "LATER": "1"}, had, read)
    for name in ("SYMPY_DEBUG", "CXX"):
        with pytest.raises(StartCold, match=name):
            check_environment({**had, name: "1"}, had, read)


def in_a_new_process(code):
    text = "from detlab.warm.preload import *\nimport mmap, os, types\n" + code
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60).stderr


def test_a_process_that_shares_memory_for_writing_is_not_forked():
    assert in_a_new_process("mine = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE)\ncheck_private()") == ""
    assert "Unfit: it shares memory" in in_a_new_process("shared = mmap.mmap(-1, 4096)\ncheck_private()")


# No GPU here: what torch says on one.
CUDA = """
me = os.getpid()
cuda = types.SimpleNamespace(is_initialized=lambda: {initialised}, _is_in_bad_fork=lambda: {bad})
check_no_cuda(types.SimpleNamespace(cuda=cuda))
"""


@pytest.mark.parametrize(
    ("initialised", "bad", "why"),
    [(False, False, ""), (True, False, "was initialised before the fork"), (False, "os.getpid() != me", "was used")],
)
def test_a_process_that_has_used_cuda_is_not_forked(initialised, bad, why):
    said = in_a_new_process(CUDA.format(initialised=initialised, bad=bad))
    assert f"Unfit: CUDA {why}" in said if why else said == ""


def write_tree(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_memory_that_only_caches_files_is_free_and_every_group_around_us_counts(tmp_path):
    slice_, service = "sys/fs/cgroup/system.slice", "sys/fs/cgroup/system.slice/agent.service"
    write_tree(
        tmp_path,
        {
            "proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n",
            "proc/self/cgroup": "0::/system.slice/agent.service\n",
            f"{slice_}/memory.max": "4096000\n",
            f"{slice_}/memory.current": "3096000\n",
            f"{slice_}/memory.stat": "anon 96000\nactive_file 1000000\ninactive_file 2000000\n",
            f"{service}/memory.max": "max\n",
            f"{service}/memory.current": "3096000\n",
        },
    )
    assert free_memory(tmp_path) == 4096000 - 3096000 + 2000000
    (tmp_path / service / "memory.max").write_text("3100000")
    assert free_memory(tmp_path) == 4000
    assert free_memory(tmp_path / "nothing") == 0


def test_a_pool_writes_down_its_process_or_why_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(warm_pool, "PROGRAM", "import time; time.sleep(600)")
    free = [MEMORY_TO_START - 1]
    note = tmp_path / "warm_pool.json"
    pool = WarmPool({}, memory=lambda: free[0], note=note)
    try:
        pool.start()
        told = json.loads(note.read_text())
        assert told == {"pid": None, "started": None, "reason": "2.0 GiB of memory are free; it starts with 2 GiB"}
        free[0] = MEMORY_TO_START
        pool.start()
        told = json.loads(note.read_text())
        assert (told["pid"], told["reason"]) == (pool.pid, "")
        assert procfs.is_alive(told["pid"], told["started"])
        free[0] = 0
        assert not pool.ready
        assert json.loads(note.read_text())["reason"] == "memory is short"
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("runtime", "launch", "reason"),
    [
        (None, {"entrypoint": "a | b"}, None),
        ("process", {"entrypoint": "python3 train.py"}, None),
        ("process", {"entrypoint": "python3 a.py | cat"}, "the entrypoint needs a shell"),
        ("process", {"entrypoint": "python3 a.py | cat", "environment": {"DETLAB_WARM_POOL": "0"}}, None),
        ("process", {"entrypoint": "a | b", "info": {"task_type": "NOTEBOOK"}}, None),
        ("docker", {"entrypoint": "python3 train.py"}, "it runs in a container"),
    ],
)
def test_why_a_trial_starts_cold_where_there_is_a_pool(runtime, launch, reason):
    assert why_cold(runtime, {"info": {}, "environment": {}, **launch}) == reason


def test_a_zygote_that_says_why_it_cannot_be_is_not_tried_again_at_every_launch(monkeypatch, caplog):
    """Without torch, each launch of a trial started an interpreter that found so."""
    monkeypatch.setattr(warm_pool, "PROGRAM", NO_TORCH)
    monkeypatch.setattr(warm_pool, "RESTART_PAUSE", 0.0)
    pool = WarmPool({}, memory=lambda: MEMORY_TO_START)
    pool.start()
    try:
        assert pool._control is not None
        assert select.select([pool._control], [], [], 60)[0]
        for _ in range(2):
            assert pool.fork(ForkRequest("/d", {}, []), 1, 2) is None
            assert pool.pid is None
        assert "no warm pool, trials start cold: ModuleNotFoundError: import of torch halted" in caplog.text
        pool._packages = ()  # as if torch had been installed
        assert pool.fork(ForkRequest("/d", {}, []), 1, 2) is None
        assert pool.pid is not None
    finally:
        pool.close()


NO_TORCH = "import sys; sys.modules['torch'] = None; from detlab.warm.zygote import main; main()"


def test_a_zygote_that_cannot_be_forked_is_not_replaced_at_every_launch(monkeypatch, caplog):
    """Each launch started another, which was given up at the next one."""
    monkeypatch.setattr(warm_pool, "PROGRAM", TWO_THREADS)
    pool = WarmPool({}, memory=lambda: MEMORY_TO_START)
    pool.start()
    try:
        assert pool._control is not None
        assert select.select([pool._control], [], [], 60)[0]
        assert pool.ready
        for _ in range(2):
            assert pool.fork(ForkRequest("/d", {}, []), 1, 2) is None
            assert pool.pid is None
        assert caplog.text.count("it cannot be forked") == 1
        pool._not_before = float("-inf")  # as if the pause were over
        assert pool.fork(ForkRequest("/d", {}, []), 1, 2) is None
        assert pool.pid is not None
    finally:
        pool.close()


TWO_THREADS = """
import threading, time
from detlab.warm import zygote
zygote.preload = lambda: []  # torch takes long and adds nothing here
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
zygote.main()
"""


def test_an_agent_whose_working_directory_was_removed_has_a_zygote(monkeypatch, tmp_path):
    """No trial started there: FileNotFoundError left every fork."""
    monkeypatch.setattr(warm_pool, "PROGRAM", "import time; time.sleep(600)")
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    pool = WarmPool({}, memory=lambda: MEMORY_TO_START)
    try:
        assert pool.fork(ForkRequest("/d", {}, []), 1, 2) is None
        assert pool.pid is not None
    finally:
        pool.close()


def test_an_error_of_the_system_while_forking_makes_a_cold_start(caplog):
    def memory():
        raise OSError("too many open files")

    assert WarmPool({}, memory=memory).fork(ForkRequest("/d", {}, []), 1, 2) is None
    assert "/d starts cold: too many open files" in caplog.text


def test_a_killed_zygote_that_does_not_end_holds_nobody_up(monkeypatch):
    """Another process traces it: its end is that one's to see first, as one that hangs in the kernel has none."""
    monkeypatch.setattr(warm_pool, "PROGRAM", "import time; time.sleep(600)")
    monkeypatch.setattr(warm_pool, "END_TIMEOUT", 0.1)
    pool = WarmPool({}, memory=lambda: MEMORY_TO_START)
    pool.start()
    traced, process = str(pool.pid), pool._process
    tracer = subprocess.Popen([sys.executable, "-c", TRACE, traced], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        if tracer.stdout.readline() != b"0\n":
            pytest.skip("needs a kernel that lets one process trace another")
        pool.close()
        assert Path(f"/proc/{traced}").exists()
        assert pool.pid is None
    finally:
        pool.close()
        tracer.communicate()
        process.wait(10)


TRACE = """
import ctypes, sys
PTRACE_SEIZE = 0x4206
print(ctypes.CDLL(None).ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None), flush=True)
sys.stdin.read()
"""


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


def test_large_pages_are_asked_for_where_a_whole_one_fits_into_memory_of_no_file():
    lines = [
        "7f0000001000-7f0000a00000 rw-p 00000000 00:00 0 ",
        "7f0001000000-7f0001200000 rw-p 00000000 00:00 0                          [heap]",
        "7f0002000000-7f00021ff000 rw-p 00000000 00:00 0 ",
        "7f0003000000-7f0004000000 r--p 00000000 00:00 0 ",
        "7f0005000000-7f0006000000 rw-p 00000000 fe:00 1234                       /usr/lib/libtorch.so",
        "7f0007000000-7f0008000000 rw-s 00000000 00:00 0 ",
        "7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0                          [stack]",
    ]
    assert list(large_ranges(lines)) == [(0x7F0000200000, 0x7F0000A00000), (0x7F0001000000, 0x7F0001200000)]


@pytest.mark.slow
def test_memory_on_large_pages_holds_what_it_held():
    with mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory[::4096] = bytes(index % 251 for index in range(len(memory) // 4096))
        assert use_large_pages() >= 0
        assert memory[::4096] == bytes(index % 251 for index in range(len(memory) // 4096))


ENDS_IN_FORKS = """
import ctypes, gc, os, resource, sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType
from detlab.warm.ending import WarmEnding
ending = WarmEnding.prepare()
import asyncio, numpy, httpx, sqlite3, xml.dom.minidom, detlab.core
ending.know()
gc.collect()
gc.freeze()

def pages():
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt

def of_c():
    ctypes.pythonapi.Py_AtExit(ctypes.CDLL(None).abort)  # called by the interpreter, last of all

def with_a_library():
    of_c()
    sys.modules["own"] = module = ModuleType("own")
    module.__spec__ = ModuleSpec("own", ExtensionFileLoader("own", "/own.so"))

for noted, program in ((True, int), (False, int), (True, of_c), (True, with_a_library)):
    before = pages()
    pid = os.fork()
    if not pid:
        program()
        if noted:
            ending.note()
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), pages() - before, flush=True)  # else forks repeat it
"""


def test_a_forked_program_that_ends_well_does_not_take_the_interpreter_down():
    """Most of what a trial of a few reports cost was the end of an interpreter that nobody used any more."""
    found = subprocess.run([sys.executable, "-c", ENDS_IN_FORKS], capture_output=True, text=True, check=True).stdout
    (short, few), (whole, many), (left_out, _), (called, _) = (map(int, line.split()) for line in found.splitlines())
    assert (short, whole) == (0, 0)
    assert few < 0.85 * many
    assert left_out == 0, "the process ended before the interpreter did"
    assert called == -signal.SIGABRT, "libraries that the program has loaded are told of the end by the interpreter"


NO_SPEC = """
import os, sys
from detlab.warm.ending import WarmEnding
ending = WarmEnding.prepare()
import detlab.core
ending.know()
class Lazy:
    def __getattr__(self, name):
        raise ImportError(name)
if not os.fork():
    sys.modules["lazy"] = Lazy()
    ending.note()
    sys.exit(0)
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_a_module_that_will_not_tell_its_spec_ends_in_silence():
    """The end failed, and printed the names of all modules."""
    ended = subprocess.run([sys.executable, "-c", NO_SPEC], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
