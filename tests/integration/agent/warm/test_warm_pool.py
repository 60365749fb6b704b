"""Trials that are forked from the warm pool: as isolated as those that are started cold, and as mortal."""

import json
import os
import re
import select
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from agent_helpers import TRIALS, AgentProcess, make_bundle, trial, wait_until
from warm_programs import ENDS, LOOK, WHERE

from detlab.governance.attestation import installed_code
from detlab.launch.host import procfs
from detlab.launch.warm_wire import ForkRequest
from detlab.testing.master import MasterDouble
from detlab_agent.runtimes.process.warm_pool import WarmPool

COLD = {"DETLAB_WARM_POOL": "0"}
READY = re.compile(r"zygote (\d+) is ready")


@pytest.fixture(scope="module")
def master():
    with MasterDouble() as double:
        yield double


@pytest.fixture(scope="module")
def agent(master):
    with tempfile.TemporaryDirectory(prefix="detlab-warm-") as name:
        root = Path(name)
        root.chmod(0o711)
        options = () if os.geteuid() == 0 else ("--serves-user", "alice")
        process = AgentProcess(master, root / "agent", *options, "--runtime", "process", "--warm-pool", forked=False)
        process.start()
        try:
            master.wait_for(master.connected, what="the agent connects")
            yield process
        finally:
            process.end()
            print(process.log.read_text())


def zygotes(agent):
    return [int(pid) for pid in READY.findall(agent.log.read_text())]


@pytest.fixture
def warm(agent):
    """The pid of a zygote that is ready."""
    wait_until(lambda: zygotes(agent) and procfs.is_alive(zygotes(agent)[-1], None), 120, "a zygote is ready")
    return zygotes(agent)[-1]


def begin(master, code, *arguments, files=None, name="train.py", environment=None, entrypoint=None, **more):
    """Run a script as a trial."""
    bundle = master.add_bundle(make_bundle({name: (code, 0o644), **(files or {})}))
    command = entrypoint or ["python3", name, *arguments]
    return master.launch(command, bundle=bundle, environment=environment or {}, **more)


def run(master, code, *arguments, **more):
    """Run a script as a trial to its end."""
    task = begin(master, code, *arguments, **more)
    master.wait_for(lambda: task.exits, timeout=90)
    return task


def said(master, task):
    assert task.exits[0].exit_code == 0, (task.exits, master.texts(task))
    return json.loads(master.texts(task, "stdout")[-1])


def test_a_plain_program_is_forked_and_one_that_opts_out_is_not(master, agent, warm):
    assert said(master, run(master, WHERE))["torch"]
    assert not said(master, run(master, WHERE, environment=COLD))["torch"]


@pytest.mark.parametrize(
    ("entrypoint", "environment", "reason"),
    [
        (["sh", "-c", "python3 train.py"], {}, "the entrypoint is not a Python program"),
        (None, {"MKL_NUM_THREADS": "1"}, "the environment variable MKL_NUM_THREADS is read when an interpreter starts"),
    ],
)
def test_what_the_pool_cannot_serve_says_so_once(master, agent, warm, entrypoint, environment, reason):
    told = [f"detlab: started cold, since the warm pool cannot serve this trial: {reason}"]
    for number, expected in ((1, told), (2, [])):
        task = run(master, WHERE, entrypoint=entrypoint, environment=environment, run=number)
        assert not said(master, task)["torch"]
        lines = [text for text in master.texts(task, "launcher") if not text.startswith("detlab: attempt ")]
        assert lines == expected


def test_the_short_folder_of_its_launcher_is_not_the_trials_to_remove(master, agent, warm):
    """A forked trial whose TMPDIR has a short name closed a descriptor that was not its own, and said so."""
    code = "import os, tempfile; print(tempfile.gettempdir()); open(os.environ['TMPDIR'] + '/mark', 'w').close()"
    task = run(master, code)
    assert task.exits[0].exit_code == 0
    assert len(str(agent.task_dir(task) / "tmp")) > 40
    assert len(master.texts(task, "stdout")[0]) <= 40
    assert master.texts(task, "stderr") == []


def differences(one, other):
    """What two descriptions do not share, entry by entry."""
    found = {}
    for key in sorted({*one, *other}):
        here, there = one.get(key), other.get(key)
        if isinstance(here, dict) and isinstance(there, dict):
            found |= {f"{key}.{inner}": pair for inner, pair in differences(here, there).items()}
        elif here != there:
            found[key] = (here, there)
    return found


@pytest.mark.parametrize(
    ("entrypoint", "where"),
    [
        (["python3", "train.py", "--lr", "0.1", "a b"], ""),
        ("python3 -u ./sub/train.py --lr 0.1 'a b'", "sub/"),
        (["python3", "-m", "sub.train", "x"], "sub/"),
        ([sys.executable, "-c", "exec(open('train.py').read())", "x"], ""),
    ],
    ids=["script", "line", "module", "code"],
)
def test_a_forked_program_finds_what_a_new_interpreter_finds(master, agent, warm, entrypoint, where):
    script = f"{where}train.py"
    tasks = [
        begin(master, LOOK, name=script, environment=environment, entrypoint=entrypoint, slots=[slot])
        for environment, slot in (({"DETLAB_X": "1"}, "cpu0"), (COLD, "cpu1"))
    ]
    master.wait_for(lambda: all(task.exits for task in tasks), timeout=90)
    found = [said(master, task) for task in tasks]
    differ = differences(*found)
    if isinstance(entrypoint, str):  # where the shell that is spared would lead the group
        assert differ.pop("group_leader") == (True, False)
    assert not differ, json.dumps(differ, indent=1)


def ending(master, agent, task):
    texts = [(kind, without_ours(master.texts(task, kind))) for kind in ("stdout", "stderr", "launcher")]
    shown = json.dumps(texts).replace(str(agent.task_dir(task)), "TASK")
    return task.exits[0].exit_code, task.exits[0].reason, json.loads(re.sub("0x[0-9a-f]+", "0x", shown))


def without_ours(lines):
    """Leave out what only a forked program can say when it crashes: the zygote's frames below, and what it imported."""
    if not any(line.startswith("Fatal Python error") for line in lines):
        return lines
    ours = re.compile(r'  File ("[^"]*/detlab/warm/|"<string>")')
    kept = [line for line in lines if not ours.match(line) and not line.startswith("Extension modules:")]
    return kept[:-1] if kept[-1] == "" else kept


@pytest.mark.parametrize("end", ENDS)
def test_a_forked_program_ends_as_a_new_one_does(master, agent, warm, end):
    tasks = [begin(master, ENDS[end], environment=env, slots=[slot]) for env, slot in (({}, "cpu0"), (COLD, "cpu1"))]
    master.wait_for(lambda: all(task.exits for task in tasks), timeout=90)
    forked, cold = (ending(master, agent, task) for task in tasks)
    assert forked == cold


CONVOLUTION = """
import json, torch
torch.set_num_threads(2)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(4))
data, target = torch.randn(16, 3, 32, 32), torch.randint(0, 4, (16,))
optimizer = None
for step in range(3):
    loss = torch.nn.functional.cross_entropy(model(data), target)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad(); loss.backward(); optimizer.step()
(torch.randn(600, 600) @ torch.randn(600, 600)).sum()
import numpy
numpy.ones((600, 600)) @ numpy.ones((600, 600))
threads = [line.split()[1] for line in open("/proc/self/status") if line.startswith("Threads:")]
print(json.dumps({"loss": loss.item(), "threads": int(threads[0]), "cuda": torch.cuda.is_initialized()}))
"""


def test_a_convolution_in_two_threads_trains_in_a_forked_child(master, agent, warm):
    status = Path(f"/proc/{warm}/status").read_text()
    assert "Threads:\t1\n" in status
    forked = said(master, run(master, CONVOLUTION, slots=["cpu0", "cpu1"]))
    cold = said(master, run(master, CONVOLUTION, slots=["cpu0", "cpu1"], environment=COLD))
    assert forked["threads"] >= 2
    assert forked == cold


DRAWS = """
import json, multiprocessing, random, sys, tempfile, uuid
import numpy, torch
print(json.dumps({
    "random": random.random(), "numpy": numpy.random.rand(), "generator": numpy.random.default_rng().random(),
    "torch": torch.rand(1).item(), "seed": torch.initial_seed(), "uuid": uuid.uuid4().hex,
    "authkey": multiprocessing.current_process().authkey.hex(), "name": tempfile.mktemp(),
    "mine": "mine" in sys.modules, "mark": getattr(json, "mark", None), "marked": "MARK" in __import__("os").environ,
}))
import mine
json.mark = 1
__import__("os").environ["MARK"] = "1"
torch.set_default_dtype(torch.float64)
"""


def test_two_forked_trials_share_no_draw_and_no_state(master, agent, warm):
    one, two = (said(master, run(master, DRAWS, files={"mine.py": ("", 0o644)})) for _ in range(2))
    for found in (one, two):
        assert (found.pop("mine"), found.pop("mark"), found.pop("marked")) == (False, None, False)
    assert [name for name in one if one[name] == two[name]] == []


WORKERS = """
import multiprocessing, os, torch
class Squares(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return i * i
def cwd(_):
    return os.getcwd()
if __name__ == "__main__":
    print(sum(b.sum().item() for b in torch.utils.data.DataLoader(Squares(), 2, num_workers=2)))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(cwd, [0]) == [os.getcwd()])
"""


def test_a_forked_trial_has_workers_that_are_forked_and_spawned(master, agent, warm):
    task = run(master, WORKERS)
    assert (task.exits[0].exit_code, master.texts(task, "stdout")) == (0, ["140", "True"]), master.texts(task)


LINES = """
import sys, time
for number in range(3):
    print("out", number)
    print("err", number, file=sys.stderr)
sys.stdout.write("no newline yet")
time.sleep(60)
"""


def test_lines_arrive_while_a_forked_trial_runs_and_a_kill_ends_it(master, agent, warm):
    task = begin(master, LINES)
    master.wait_for(lambda: master.texts(task, "stdout") == ["out 0", "out 1", "out 2"], timeout=60)
    assert master.texts(task, "stderr") == ["err 0", "err 1", "err 2"]
    assert len(agent.processes(task)) == 2
    master.send_kill(task, grace=5.0)
    master.wait_for(lambda: task.exits, timeout=30)
    assert task.exits[0].exit_code == -signal.SIGTERM
    assert master.texts(task, "stdout")[-1] == "no newline yet"
    assert agent.processes(task) == []


def test_a_forked_trial_that_ignores_sigterm_is_killed_after_the_grace(master, agent, warm):
    task = master.launch(["python3", *trial("IgnoresSigterm")[1:]])
    master.wait_for(lambda: "up" in master.texts(task), timeout=60)
    master.send_kill(task, grace=1.0)
    master.wait_for(lambda: task.exits, timeout=30)
    assert task.exits[0].exit_code == -signal.SIGKILL
    assert agent.processes(task) == []


def test_a_hidden_grandchild_of_a_killed_forked_launcher_is_found_and_the_zygote_is_spared(master, agent, warm):
    task = master.launch(["python3", *trial("HidesGrandchild")[1:]])
    master.wait_for(lambda: master.texts(task, "stdout"), timeout=60)
    grandchild = int(master.texts(task, "stdout")[0])
    launcher = json.loads((agent.task_dir(task) / "launcher.json").read_text())["pid"]
    os.kill(launcher, signal.SIGKILL)
    master.wait_for(lambda: task.exits, timeout=30)
    assert task.exits[0].reason == "launcher_lost"
    wait_until(lambda: not procfs.is_alive(grandchild, None), what="the grandchild is ended")
    assert agent.processes(task) == []
    assert procfs.is_alive(warm, None)
    # The launcher was no child of the agent's by birth; it is reaped like one.
    wait_until(lambda: procfs.read_process(launcher) is None, what="the launcher is reaped")


def test_a_forked_task_is_taken_up_again_by_the_agents_next_life(master, agent, warm):
    task = master.launch(["python3", *trial("NeverExits")[1:]])
    master.wait_for(lambda: "up" in master.texts(task), timeout=60)
    agent.kill()
    wait_until(lambda: not procfs.is_alive(warm, None), what="the zygote ends with its agent")
    assert len(agent.processes(task)) == 2
    hellos = len(master.hellos)
    agent.start()
    master.wait_for(lambda: len(master.hellos) > hellos, timeout=60)
    assert [t.allocation_id for t in master.hellos[-1].tasks] == [task.launch.allocation_id]
    master.send_kill(task)
    master.wait_for(lambda: task.exits, timeout=30)
    assert agent.processes(task) == []
    wait_until(lambda: len(zygotes(agent)) > zygotes(agent).index(warm) + 1, 120, "the next agent has a zygote")


def test_the_first_trial_after_the_zygotes_death_starts_cold_and_a_new_zygote_comes(master, agent, warm):
    os.kill(warm, signal.SIGKILL)
    assert not said(master, run(master, WHERE))["torch"]
    wait_until(lambda: zygotes(agent)[-1] != warm, 120, "a new zygote is ready")
    assert said(master, run(master, WHERE))["torch"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"entrypoint": "python3 train.py && true"}, "a shell's work"),
        ({"entrypoint": ["/usr/bin/env", "python3", "train.py"]}, "another program"),
        ({"entrypoint": ["python3", "-O", "train.py"]}, "an option of the interpreter"),
        ({"environment": {"PYTHONPATH": "/nowhere"}}, "a variable that is read at the start"),
        ({"environment": {"MKL_NUM_THREADS": "1"}}, "a variable that is read when a library is loaded"),
        ({"files": {"json.py": ("from _json import *\ndumps = str", 0o644)}}, "a module that would not be imported"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_what_a_fork_cannot_be_starts_cold(master, agent, warm, change, why):
    task = run(master, "import sys\nprint('torch' in sys.modules)\n", **change)
    assert (task.exits[0].exit_code, master.texts(task, "stdout")) == (0, ["False"]), why


def test_a_zygote_that_dies_before_its_first_fork_is_replaced_at_once():
    pool = WarmPool(dict(os.environ))
    pool.start()
    try:
        first, said_something = pool.pid, pool._control
        wait_until(lambda: select.select([said_something], [], [], 0)[0], 120, "it says that it is ready")
        assert pool.code() == installed_code(), "it says what it has loaded"
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: pool.pid is None, what="it is dead")
        assert pool.code() == ""
        assert pool.fork(ForkRequest(directory="d", command=[], env={}), 0, 0) is None, "this one starts cold"
        assert pool.pid not in {None, first}
    finally:
        pool.close()


HOSTILE = Path(__file__).parents[1].joinpath("hostile_neighbour.py").read_text(encoding="utf-8")


@pytest.mark.skipif(os.geteuid() != 0, reason="uids can only be changed by root")
def test_a_forked_trial_of_another_user_and_the_zygote_cannot_be_read_steered_or_ended(master, agent, warm):
    bob = begin(master, TRIALS["NeverExits"], owner="bob", slots=["cpu1"])
    master.wait_for(lambda: "up" in master.texts(bob), timeout=60)
    launcher = json.loads((agent.task_dir(bob) / "launcher.json").read_text())["pid"]
    (program,) = [process.pid for process in procfs.descendants(launcher)]
    assert "libtorch" in Path(f"/proc/{program}/maps").read_text(), "it was forked: it imports nothing"
    victims = {"their program": program, "their launcher": launcher, "the zygote": warm, "the agent": agent.process.pid}
    paths = [str(path) for path in (agent.directory / "key.json", agent.task_dir(bob))]
    environment = {"VICTIMS": json.dumps(victims), "PATHS": json.dumps(paths)}
    task = run(master, HOSTILE, owner="alice", slots=["cpu0"], environment=environment)
    assert task.exits[0].exit_code == 0, (task.exits, master.texts(task))
    told = {}
    for line in master.texts(task, "stdout"):
        told |= json.loads(line)
    for name, pid in victims.items():
        told[name].pop("cmdline")
        assert {what: how for what, how in told[name].items() if how not in {"EPERM", "EACCES", "ENOSYS"}} == {}, name
        assert procfs.is_alive(pid, None), name
    assert {told[path] for path in paths} <= {"EPERM", "EACCES"}
    assert not [pair for pair in told["launcher"] if "TOKEN" in pair or "SECRET" in pair or "dtagent_" in pair]
    own = (str(agent.task_dir(task)), "/dev/", "/proc/")
    lock = re.compile(r"/tmp/det-\w+/\.lock")  # of its launcher, whose folder is the short name of TMPDIR
    held = [path for path in told["held"] if path.startswith("/") and not path.startswith(own)]
    assert [path for path in held if not lock.fullmatch(path)] == []
    master.send_kill(bob)
    master.wait_for(lambda: bob.exits, timeout=30)
