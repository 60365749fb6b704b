"""Where a later attempt of a trial begins is a line of its output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from detlab.testing.master import MasterDouble

UUID = "11111111-1111-4111-8111-111111111111"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"run": 1}, []),
        ({"run": 2}, ["detlab: attempt 2 of trial 7 begins anew, without a checkpoint"]),
        (
            {"run": 3, "latest_checkpoint": UUID, "resume_step": 400},
            [f"detlab: attempt 3 of trial 7 resumes at step 400, from checkpoint {UUID}"],
        ),
        (
            {"run": 2, "latest_checkpoint": UUID},
            [f"detlab: attempt 2 of trial 7 begins anew, from checkpoint {UUID}"],
        ),
        ({"run": 2, "container_rank": 1}, []),
        ({"run": 2, "trial_id": 0}, []),
    ],
)
def test_a_later_attempt_is_marked_in_the_output(tmp_path: Path, told: dict[str, Any], said: list[str]) -> None:
    for name in ("work", "spool", "home", "tmp"):
        (tmp_path / name).mkdir(mode=0o700)
    with MasterDouble() as master:
        allocation = master.allocate([sys.executable, "-c", "print('trains')"])
        message = allocation.launch.model_dump(mode="json", exclude={"task_token"})
        message["info"] |= {"trial_id": 7, **told}
        (tmp_path / "launch.json").write_text(json.dumps(message))
        (tmp_path / "token").write_text(allocation.token)
        command = [sys.executable, "-m", "detlab.launch.task", "--dir", str(tmp_path)]
        subprocess.run(command, check=True, timeout=60)
        assert master.texts(allocation) == [*said, "trains"]
        assert master.texts(allocation, "launcher") == said
