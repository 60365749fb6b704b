"""The launcher must be light: the user's code starts at once, and torch is nobody's business here."""

import json
import subprocess
import sys
import time

import pytest

from detlab.testing.master import MasterDouble


def test_the_launcher_imports_nothing_heavy_before_the_users_code_starts():
    heavy = ["torch", "numpy", "httpx", "pydantic", "tornado", "asyncio", "yaml", "click"]
    program = f"import detlab.launch.task, sys, json; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.alone
def test_the_users_code_starts_within_three_tenths_of_a_second(tmp_path):
    delays = []
    with MasterDouble() as master:
        for attempt in range(5):
            allocation = master.allocate("date +%s.%N")
            root = tmp_path / str(attempt)
            for name in ("work", "spool", "home", "tmp"):
                (root / name).mkdir(parents=True)
            launch = allocation.launch.model_dump(mode="json", exclude={"task_token"})
            (root / "launch.json").write_text(json.dumps(launch))
            (root / "token").write_text(allocation.token)
            began = time.time()
            command = [sys.executable, "-m", "detlab.launch.task", "--dir", str(root)]
            subprocess.run(command, check=True, timeout=30)
            delays.append(float(master.texts(allocation)[0]) - began)
            assert json.loads((root / "exit.json").read_text())["exit_code"] == 0
            assert (root / "spool" / "logs.acked").read_text() == "1\n"
    # The best of five: this machine has other things to do.
    assert min(delays) < 0.3, delays
