"""wrap_rank and torch_distributed: arguments, real processes, two gloo ranks."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detlab.launch.taskdir import first_failing_rank
from detlab.launch.torch_distributed import rank_environment, slot_count, split_arguments, torchrun_command
from detlab.launch.wrap_rank import parse_arguments
from testbed.waiting import until


@pytest.mark.parametrize(
    ("arguments", "env", "expected"),
    [
        (["3", "--", "cmd", "x"], {}, (3, ["cmd", "x"])),
        (["3", "cmd", "--", "x"], {}, (3, ["cmd", "--", "x"])),
        (["RANK", "--", "cmd"], {"RANK": "2"}, (2, ["cmd"])),
        (["A,RANK", "--", "cmd"], {"RANK": "2"}, (2, ["cmd"])),
        (["--", "cmd"], {"RANK": "1"}, (1, ["cmd"])),
        (["python3", "x.py"], {"RANK": "1"}, (1, ["python3", "x.py"])),
        (["--no-redirect-stdio", "0", "cmd"], {}, (0, ["cmd"])),
    ],
)
def test_wrap_rank_arguments(arguments, env, expected):
    assert parse_arguments(arguments, env) == expected


@pytest.mark.parametrize("arguments", [[], ["3"], ["3", "--"], ["--", "cmd"], ["RANK", "--", "cmd"]])
def test_wrap_rank_arguments_that_make_no_sense(arguments):
    with pytest.raises(ValueError, match="usage"):
        parse_arguments(arguments, {})


def wrap(tmp_path, *command, rank="3", **options):
    (tmp_path / "spool").mkdir(exist_ok=True)
    env = {**os.environ, "DET_TASK_DIR": str(tmp_path)}
    return subprocess.run(
        [sys.executable, "-m", "detlab.launch.wrap_rank", rank, "--", *command],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        **options,
    )


def test_a_line_that_ends_with_a_return_is_shown_at_once(tmp_path):
    """The command writes nothing after it until it is answered."""
    code = "import sys; sys.stdout.write('50%\\r'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-m", "detlab.launch.wrap_rank", "3", "--", sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "DET_TASK_DIR": ""},
    ) as process:
        assert process.stdout.readline() == b"[rank=3] 50%\n"
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


def test_every_line_says_its_rank(tmp_path):
    done = wrap(tmp_path, "sh", "-c", "echo a; echo b >&2; printf c; exit 9")
    assert done.returncode == 9
    assert done.stdout == "[rank=3] a\n[rank=3] c\n"
    assert done.stderr == "[rank=3] b\n"
    entry = json.loads((tmp_path / "spool" / "ranks.jsonl").read_text())
    assert (entry["rank"], entry["exit_code"]) == (3, 9)


def test_a_signal_is_passed_through_as_what_it_is(tmp_path):
    assert wrap(tmp_path, "sh", "-c", "kill -KILL $$").returncode == -signal.SIGKILL
    assert wrap(tmp_path, "sh", "-c", "kill -SEGV $$").returncode == -signal.SIGSEGV


def test_sigterm_reaches_the_wrapped_command(tmp_path):
    command = [sys.executable, "-m", "detlab.launch.wrap_rank", "0", "--", "sh", "-c"]
    command.append("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "[rank=0] up\n"
        process.terminate()
        assert process.stdout.read() == "[rank=0] bye\n"
        assert process.wait(10) == 5


def test_sigterm_ends_a_command_that_was_stopped(tmp_path):
    command = [sys.executable, "-m", "detlab.launch.wrap_rank", "0", "--", "sh", "-c"]
    command.append("echo up; kill -STOP $$; echo never")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "[rank=0] up\n"
        (child,) = (int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        until(lambda: Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it has stopped")
        process.terminate()
        assert process.wait(10) == -signal.SIGTERM
        assert process.stdout.read() == ""


def test_a_command_that_is_not_there(tmp_path):
    done = wrap(tmp_path, "no-such-thing")
    assert done.returncode == 127
    assert "no-such-thing" in done.stderr


def test_the_first_failing_rank_is_the_earliest_failure(tmp_path):
    path = tmp_path / "ranks.jsonl"
    assert first_failing_rank(path) is None
    entries = [(1, 0, 1.0), (0, -15, 5.0), (3, 1, 4.0), (2, -15, 5.1)]
    lines = [json.dumps({"rank": r, "exit_code": c, "time": t}) for r, c, t in entries]
    path.write_text("\n".join(lines) + '\n{"rank": 9, "exit')
    assert first_failing_rank(path) == 3


def test_torch_distributed_arguments():
    assert split_arguments(["train.py", "--lr", "1"]) == ([], ["train.py", "--lr", "1"])
    assert split_arguments(["--nproc_per_node=1", "--", "python3", "t.py"]) == (
        ["--nproc_per_node=1"],
        ["python3", "t.py"],
    )
    for bad in ([], ["--"], ["--x", "--"], ["--trial"], ["--trial", "m:T", "x"], ["--nproc_per_node=2", "x"]):
        with pytest.raises(ValueError, match="usage"):
            split_arguments(bad)


def test_torchrun_gets_one_process_per_slot_no_restarts_and_overrides_last():
    env = {"DET_SLOT_IDS": "[0, 1, 2]", "DET_ALLOCATION_ID": "a.b.1"}
    command = torchrun_command(["--nproc_per_node=1"], ["train.py", "x"], env, python="PY")
    assert "--nproc_per_node=3" in command
    assert command.index("--nproc_per_node=3") < command.index("--nproc_per_node=1")
    assert "--max_restarts=0" in command
    assert command[-8:] == ["PY", "-m", "detlab.launch.wrap_rank", "RANK", "--", "PY", "train.py", "x"]


def test_slots_and_threads():
    assert slot_count({}) == 1
    assert slot_count({"DET_SLOT_IDS": "[]"}) == 1
    assert slot_count({"DET_SLOT_IDS": "[0,1]"}) == 2
    assert rank_environment({"DET_SLOT_IDS": "[0,1]", "OMP_NUM_THREADS": "2"})["OMP_NUM_THREADS"] == "1"
    assert rank_environment({"DET_SLOT_IDS": "[0,1]", "OMP_NUM_THREADS": "8"})["OMP_NUM_THREADS"] == "8"
    assert rank_environment({"DET_SLOT_IDS": "[0,1]"})["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in rank_environment({"DET_SLOT_IDS": "[0]"})


ALL_REDUCE = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(t)
print("sum", t.item(), "of", dist.get_world_size())
dist.destroy_process_group()
if len(sys.argv) > 1 and int(sys.argv[1]) == int(os.environ["RANK"]):
    sys.exit(13)
"""


def distributed(tmp_path, *arguments):
    script = tmp_path / "reduce.py"
    script.write_text(ALL_REDUCE)
    (tmp_path / "spool").mkdir()
    env = {**os.environ, "DET_SLOT_IDS": "[0, 1]", "DET_TASK_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "detlab.launch.torch_distributed", *arguments]
    return subprocess.run(
        [part.replace("SCRIPT", str(script)) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        timeout=150,
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", [["SCRIPT"], [sys.executable, "SCRIPT"]])
def test_two_gloo_processes_meet_and_reduce(tmp_path, command):
    done = distributed(tmp_path, *command)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank=0] sum 3.0 of 2", "[rank=1] sum 3.0 of 2"]


@pytest.mark.slow
def test_a_failing_rank_fails_the_whole_and_is_named(tmp_path):
    done = distributed(tmp_path, "SCRIPT", "1")
    assert done.returncode != 0
    assert first_failing_rank(tmp_path / "spool" / "ranks.jsonl") == 1
