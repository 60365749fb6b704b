"""Programs that fail under the real launcher, and what their cards say: the class, the line, the last words."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from detlab.testing.master import MasterDouble
from detlab_hub.services.failures.diagnosis import Evidence, classify
from detlab_hub.services.failures.rank_faults import RankLine

PROGRAMS = {
    "import": ("import no_such_module_anywhere", "No module named 'no_such_module_anywhere'", 1),
    "nan": ("import math\nloss = math.nan\nassert math.isfinite(loss), f'loss is {loss}'", "loss is nan", 3),
    "oom": (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\nbytes(1 << 31)",
        "MemoryError",
        3,
    ),
    "exception": ("print('step 1')\n{}['<b>x</b>']", "KeyError: '<b>x</b>'", 2),
}


@pytest.mark.parametrize("kind", [*PROGRAMS, "killed"])
def test_what_a_program_dies_of_is_told_from_its_real_output(tmp_path: Path, kind: str) -> None:
    program, said, line = PROGRAMS.get(kind, ("import os\nos.kill(os.getpid(), 9)", "killed by SIGKILL", 0))
    with MasterDouble() as master:
        allocation = master.allocate([sys.executable, "train.py"])
        root = tmp_path / "tasks" / allocation.launch.allocation_id
        for name in ("work", "spool", "home", "tmp"):
            (root / name).mkdir(parents=True)
        (root / "work" / "train.py").write_text(textwrap.dedent(program))
        launch = allocation.launch.model_dump(mode="json", exclude={"task_token"})
        (root / "launch.json").write_text(json.dumps(launch))
        (root / "token").write_text(allocation.token)
        subprocess.run([sys.executable, "-m", "detlab.launch.task", "--dir", str(root)], check=False, timeout=60)
        lines = [RankLine(one.get("rank"), one["text"]) for one in allocation.records["logs"]]
    ended = json.loads((root / "exit.json").read_text())
    found = classify(lines, Evidence(ended["exit_code"], ended["rank"]), allocation_id=root.name)
    assert found.kind == kind, lines
    assert said in found.message
    assert found.where == (f"train.py, line {line}" if line else None)
    assert found.log_tail == tuple(one.text for one in lines)[-20:]


RANKS = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, torch_model = dist.get_rank(), torch.nn.Linear(4, 2)
model = DistributedDataParallel(torch_model)
for step in range(4):
    loss = model(torch.randn(3, 4)).sum()
    {does}
    loss.backward()
print("finished", flush=True)
"""


@pytest.mark.parametrize(
    ("does", "said"),
    [
        pytest.param(
            "if rank == 1 and step == 2: continue  # without backward",
            "rank 1 ended with exit code 0",
            marks=pytest.mark.soak,
        ),
        ("if rank == 1 and step == 2: os._exit(0)", "rank 1 ended with exit code 0"),
        ("if rank == 1 and step == 2: os._exit(3)", "exited with code 3"),
        ("if rank == 1 and step == 2: raise ValueError('bad batch')", "ValueError: bad batch"),
    ],
)
def test_the_rank_that_left_is_named_and_not_the_innocent_one(tmp_path: Path, does: str, said: str) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "detlab.launch.torch_distributed", sys.executable, "train.py"]
    with MasterDouble() as master:
        allocation = master.allocate(command, slots=("cpu0", "cpu1"))
        root = tmp_path / "tasks" / allocation.launch.allocation_id
        for name in ("work", "spool", "home", "tmp"):
            (root / name).mkdir(parents=True)
        (root / "work" / "train.py").write_text(RANKS.replace("{does}", does))
        (root / "launch.json").write_text(json.dumps(allocation.launch.model_dump(mode="json", exclude={"task_token"})))
        (root / "token").write_text(allocation.token)
        subprocess.run([sys.executable, "-m", "detlab.launch.task", "--dir", str(root)], check=False, timeout=180)
        lines = [RankLine(one.get("rank"), one["text"], one.get("stdtype", "")) for one in allocation.records["logs"]]
    ended = json.loads((root / "exit.json").read_text())
    found = classify(lines, Evidence(ended["exit_code"], ended["rank"], size=2), allocation_id=root.name)
    assert (found.rank, found.message.startswith(said)) == (1, True), (found, lines)
