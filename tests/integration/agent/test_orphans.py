"""What `kill_orphans` takes for an orphan, with real processes in an agent's stead."""

import subprocess
import sys

# In a process of its own: whatever is its child and carries no task is ended. The kernel counts a large environment
# for a while before it shows it, so that many looks fall into the middle of exec.
AGENT = r"""
import json, os, subprocess, sys, threading
from detlab.launch.host import procfs
from detlab_agent.runtimes.process import task as process_task
done, looks = threading.Event(), 0
many = {f"E{n:x}": "" for n in range(40_000)}
HOLD = [sys.executable, "-S", "-c", "input(); print('lived', end='')"]
def look():
    global looks
    while not done.is_set():
        process_task.kill_orphans()
        looks += 1
def start(env):
    return subprocess.Popen(HOLD, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
looker = threading.Thread(target=look)
looker.start()
lived = 0
for _ in range(int(sys.argv[1])):
    child = start({**os.environ, **many, "DET_TASK_DIR": "/task"})
    seen = looks
    while looks < seen + 2 and procfs.is_alive(child.pid, None):
        pass
    lived += child.communicate(b"\n")[0] == b"lived"
done.set()
looker.join()
hidden = start({})
named = start({"DETLAB_X": "1"})
while any(procfs.is_in_exec(p.pid) or procfs.read_command(p.pid)[:1] != HOLD[:1] for p in (hidden, named)):
    pass
for _ in range(2):
    process_task.kill_orphans()
gone = [not procfs.is_alive(p.pid, None) for p in (hidden, named)]
print(json.dumps({"lived": lived, "orphans": gone}))
"""


def test_a_launcher_in_the_middle_of_exec_is_no_orphan_and_one_that_hid_its_task_is() -> None:
    told = subprocess.run([sys.executable, "-c", AGENT, "30"], capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout.strip() == '{"lived": 30, "orphans": [true, true]}', told.stderr
