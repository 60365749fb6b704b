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
from detlab_hub.services.failures.rank_faults import Line

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
        lines = [Line(one.get("rank"), one["text"]) for one in allocation.records["logs"]]
    ended = json.loads((root / "exit.json").read_text())
    found = classify(lines, Evidence(ended["exit_code"], ended["rank"]), allocation_id=root.name)
    assert found.kind == kind, lines
    assert said in found.message
    assert found.where == (f"train.py, line {line}" if line else None)
    assert found.log_tail == tuple(one.text for one in lines)[-20:]
