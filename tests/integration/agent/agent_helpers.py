"""Trials that misbehave, agents as processes, and waiting for the kernel: shared by the agent's tests."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import suppress
from pathlib import Path

from detlab.launch.host import procfs
from testbed import forked_det

# Misbehaving trials, by name. Each is a whole program for `python -c` or a file of the bundle.
TRIALS = {
    "SlowTrial": """
import time, sys
for step in range(200):
    print("step", step, flush=True)
    time.sleep(0.05)
sys.exit(7)
""",
    "NeverExits": """
import time
print("up", flush=True)
while True:
    time.sleep(60)
""",
    "DiesOnStart": "raise SystemExit('cannot go on')",
    "IgnoresSigterm": """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    time.sleep(60)
""",
    "EndsOnSigterm": """
import signal, sys, time
def end(*_):
    print("asked to end", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True:
    time.sleep(60)
""",
    "Floods": """
import sys
line = "x" * 90
for number in range(200000):
    sys.stdout.write(f"{number} {line}\\n")
""",
    "ForksGrandchild": """
import os, subprocess, sys
# A daemon as they come: a session of its own, orphaned, holding the task's stdout.
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("parent ends", flush=True)
""",
    "HidesGrandchild": """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True, env={})
print(child.pid, flush=True)
time.sleep(600)
""",
}


def trial(name):
    return [sys.executable, "-u", "-c", TRIALS[name]]


def make_bundle(files):
    """A tar.gz of name -> (text, mode)."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, (text, mode) in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            info.mode = mode
            tar.addfile(info, io.BytesIO(text.encode()))
    return data.getvalue()


class AgentProcess:
    """`det agent run` as a process, started and killed at will."""

    def __init__(self, master, directory, *options, forked=True):
        self.master = master
        self.forked = forked
        self.directory = directory
        self.options = options
        self.process = None
        self.prefix = []
        self.environ = {}
        self.log = directory.parent / "agent.log"
        self.token_file = directory.parent / "enrolment_token"
        self.token_file.write_text(master.enrolment_token)
        self.token_file.chmod(0o600)

    def start(self):
        options = ["--master", self.master.url, "--dir", str(self.directory), "--name", "agent", "--slots", "2"]
        options += ["--enrolment-token-file", str(self.token_file), *self.options]
        environ = {**os.environ, **self.environ}
        with self.log.open("ab") as log:
            if self.forked and not self.prefix:
                with suppress(forked_det.CannotFork):
                    self.process = forked_det.start(["agent", "run", *options], cwd=Path("/"), env=environ, output=log)
                    return
            command = [*self.prefix, sys.executable, "-P", "-m", "detlab_agent", *options]
            self.process = subprocess.Popen(command, cwd="/", env=environ, stdout=log, stderr=log)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def terminate(self):
        self.process.terminate()
        return self.process.wait(20)

    def task_dir(self, allocation):
        return self.directory / "tasks" / allocation.launch.allocation_id

    def processes(self, allocation):
        return procfs.task_processes(self.task_dir(allocation), None, None)

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.terminate()
        tasks = self.directory / "tasks"
        for path in tasks.iterdir() if tasks.is_dir() else ():
            while left := procfs.task_processes(path, None, None):
                procfs.send_signal(left, signal.SIGKILL)
                time.sleep(0.01)


def wait_until(condition, timeout=20.0, what=""):
    """Poll something outside of our processes (the kernel, the disk) until it is so."""
    end = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(what or "condition did not come true")
        time.sleep(0.02)
    return value
