"""The launcher's watch over ranks: a collective that one of two gloo processes never joins, and what is no hang."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from detlab.launch.ranks.watchdog import HUNG
from detlab.launch.taskdir import first_failing_rank
from detlab.testing.master import MasterDouble
from detlab_hub.services.failures.diagnosis import Evidence, classify
from detlab_hub.services.failures.rank_faults import RankLine
from testbed.task_dirs import make_task_dir

LIMIT = 2.0
RANKS = """
    import os, subprocess, sys
    names = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1"}
    names |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RENDEZVOUS": os.environ["DET_TASK_DIR"] + "/meet"}
    ranks = []
    for rank in "01":
        command = [sys.executable, "-m", "detlab.launch.wrap_rank", rank, "--", sys.executable, "train.py"]
        ranks.append(subprocess.Popen(command, env={**os.environ, **names, "RANK": rank, "LOCAL_RANK": rank}))
    sys.exit(max(rank.wait() for rank in ranks))
"""
GLOO = """
    import os, time
    import torch, torch.distributed as dist
    import detlab as det

    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo", init_method="file://" + os.environ["RENDEZVOUS"], rank=rank, world_size=2)

    def compute(seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sum(range(10000))

    def validate():
        if rank == 1:
            compute({busy})
        dist.all_reduce(torch.ones(1))

    def train():
        if rank == 1:
            time.sleep(3600)
        dist.all_reduce(torch.ones(1))

    with det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()):
        for _ in range(20):
            dist.all_reduce(torch.ones(1))
        validate()
        print("validated", flush=True)
        train()
"""


class Launched:
    """A task of two slots under the real launcher."""

    def __init__(self, root: Path, code: str, limit: float) -> None:
        with MasterDouble() as master:
            make_task_dir(root, master.url, storage={"type": "directory", "container_path": str(root)}, slots=(0, 1))
            (root / "home").mkdir()
            (root / "work" / "train.py").write_text(textwrap.dedent(code))
            (root / "work" / "ranks.py").write_text(textwrap.dedent(RANKS))
            allocation = master.allocate(
                [sys.executable, "ranks.py"],
                slots=("cpu0", "cpu1"),
                environment={"DET_HANG_TIMEOUT": f"{limit}", "OMP_NUM_THREADS": "1"},
            )
            launch = allocation.launch.model_dump(mode="json", exclude={"task_token"})
            (root / "launch.json").write_text(json.dumps(launch))
            (root / "token").write_text(allocation.token)
            command = [sys.executable, "-m", "detlab.launch.task", "--dir", str(root)]
            subprocess.run(command, check=False, timeout=150)
            self.lines = [RankLine(line.get("rank"), line["text"]) for line in allocation.records["logs"]]
        self.exit_code = json.loads((root / "exit.json").read_text())["exit_code"]
        self.rank = first_failing_rank(root / "spool" / "ranks.jsonl")

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]


@pytest.mark.soak
@pytest.mark.timeout(180)
def test_a_rank_that_never_joins_a_collective_is_named_and_a_long_validation_before_it_is_not(tmp_path: Path) -> None:
    task = Launched(tmp_path / "task", GLOO.format(busy=2.5 * LIMIT), LIMIT)
    assert task.texts.count("validated") == 2, task.texts
    assert (task.exit_code, task.rank) == (HUNG, 1), task.texts
    (line,) = [text for text in task.texts if " hangs: " in text]
    assert line.startswith("detlab: rank 1 (host ")
    assert "in train), while rank 0 waits in all_reduce(). This attempt ends now" in line
    found = classify(task.lines, Evidence(task.exit_code, task.rank, size=2))
    assert (found.kind, found.rank) == ("hang", 1)
    assert found.where == "train.py, line 21"
    assert any("time.sleep" in text or "in train" in text for text in found.log_tail), "its stacks"


CORE = """
    import os, time
    import detlab as det

    rank = int(os.environ["RANK"])
    distributed = det.core.DistributedContext.from_torch_distributed()
    with det.core.init(distributed=distributed) as core:
        for _ in range(20):
            distributed.allgather(rank)
        if rank == 0:
            time.sleep({sleep})  # nobody waits for longer than the limit
        distributed.gather(rank)
        if rank == 0:
            {last}
        distributed.broadcast(rank)
        print("done", flush=True)
"""


@pytest.mark.timeout(120)
def test_ranks_of_the_core_api_that_are_out_of_step_with_one_that_sleeps_are_ended(tmp_path: Path) -> None:
    task = Launched(tmp_path / "task", CORE.format(sleep=0.5 * LIMIT, last="time.sleep(3600)"), LIMIT)
    assert (task.exit_code, task.rank) == (HUNG, 0), task.texts
    assert any("while rank 1 waits in broadcast()" in text for text in task.texts), task.texts
