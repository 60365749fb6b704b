"""What the agent makes of Slurm's answers, and the jobs it asks for: no Slurm is needed for these."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath

import pytest
from slurm_orders import order_of

from detlab.launch import late_point
from detlab.schemas.wire import Partition, ServiceSpec
from detlab_agent.runtimes.base import SetupFailed
from detlab_agent.runtimes.slurm import task
from detlab_agent.runtimes.slurm.answers import JobEnd, SlurmJob, job_of, partition_of, status_of
from detlab_agent.runtimes.slurm.client import Commands, SlurmAway, SlurmFull, SlurmRefused, Whose
from detlab_agent.runtimes.slurm.ends import exit_of, of_ranks
from detlab_agent.runtimes.slurm.options import SlurmOptions
from detlab_agent.runtimes.slurm.script import file_of, files_of, once, request_of
from detlab_agent.runtimes.slurm.task import SlurmTask
from detlab_agent.runtimes.slurm.watch import JobWatch


def said(code: int | None, reason: str = "", message: str = "") -> str:
    return json.dumps({"exit_code": code, "reason": reason, "message": message})


@pytest.mark.parametrize(
    ("state", "status", "report", "expected"),
    [
        ("COMPLETED", 0, said(0), (0, "")),
        ("FAILED", 3, said(3), (3, "")),
        ("CANCELLED", 143, said(-15), (None, "machine_restarted")),
        ("CANCELLED", 143, "", (None, "machine_restarted")),
        ("CANCELLED", 0, said(0), (0, "")),  # it had ended before
        ("NODE_FAIL", None, "", (None, "machine_restarted")),
        ("PREEMPTED", 143, said(-15), (None, "machine_restarted")),
        ("TIMEOUT", 143, said(-15), (-15, "time_limit")),
        ("TIMEOUT", 0, said(0), (0, "")),  # it had saved and left
        ("OUT_OF_MEMORY", 137, "", (None, "oom")),
        ("COMPLETED", 0, said(None, "requeued"), (None, "machine_restarted")),
        ("FAILED", 127, "", (None, "setup")),
        ("FAILED", 137, "", (None, "launcher_lost")),
        ("FAILED", 125, said(None, "setup", "no bundle"), (None, "setup")),
        ("FAILED", 1, "{not json", (1, "")),
    ],
)
def test_an_end_is_told_as_what_it_was(
    state: str, status: int | None, report: str, expected: tuple[int | None, str]
) -> None:
    exit_ = exit_of("7", JobEnd(state, status), report, "python3: not found", killed=False)
    assert (exit_.exit_code, exit_.reason) == expected


def test_a_job_that_slurm_has_forgotten_is_not_the_trials_fault_unless_it_left_a_report() -> None:
    assert exit_of("7", None, "", "", killed=False).reason == "machine_restarted"
    assert exit_of("7", None, said(4), "", killed=False).exit_code == 4


@pytest.mark.parametrize("report", ["", said(-9), said(1)])
@pytest.mark.parametrize(
    ("state", "line"),
    [
        ("FAILED", "slurmstepd-n0: error: StepId=7.batch exceeded memory limit (325959680 > 52428800), being killed"),
        ("CANCELLED", "slurmstepd: error: Job 7 exceeded memory limit (9 > 5), being killed"),
        ("FAILED", "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch. Some of the step's tasks"),
        ("COMPLETED", "slurmstepd: error: Detected 2 oom_kill events in StepId=7.0."),
        ("OUT_OF_MEMORY", ""),
    ],
)
def test_what_slurm_ends_for_its_memory_is_told_in_slurms_words(state: str, line: str, report: str) -> None:
    """By the state it was somebody's scancel: nobody's fault, and started again without end."""
    exit_ = exit_of("7", JobEnd(state, 137, "n0"), report, f"step 1\n{line}\n", killed=False)
    assert exit_.reason == "oom"
    words = line.partition("error: ")[2] or "OUT_OF_MEMORY"
    assert f"Slurm job 7 on n0 exceeded its memory limit: {words}" in exit_.message


def test_what_a_task_prints_of_memory_is_not_slurms_word() -> None:
    for line in (
        "exceeded memory limit",
        "error: Job 7 exceeded memory limit",
        "x slurmstepd: error: exceeded memory limit",
    ):
        assert exit_of("7", JobEnd("CANCELLED", 143), "", line, killed=False).reason == "machine_restarted"
    whole = "slurmstepd: error: Job 7 exceeded memory limit (9 > 5), being killed"
    assert exit_of("7", JobEnd("COMPLETED", 0), said(0), whole, killed=False).exit_code == 0, "it ended well"


def test_the_node_of_a_job_is_told() -> None:
    assert (
        "Slurm job 7 on n1: a node of it failed"
        in exit_of("7", JobEnd("NODE_FAIL", None, "n1"), "", "", killed=False).message
    )


def test_sbatch_runs_as_the_owner_without_the_agents_own_credentials(tmp_path: Path) -> None:
    program = tmp_path / "setpriv"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nenv >> {tmp_path}/asked\necho 7\n')
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JWT": "secret", "SSH_AUTH_SOCK": "/x"}
    client = Commands(environ=environ, everyone=True)
    whose = Whose(1001, 1002, PurePosixPath("/shared/owners/1001"))
    client._folders.add(PurePosixPath("/shared/owners/1001"))
    assert client.submit(["--qos=high"], "#!/bin/bash\n", whose) == "7"
    first, *env = (tmp_path / "asked").read_text().splitlines()
    assert first == "--reuid=1001 --regid=1002 --clear-groups -- sbatch --parsable --qos=high"
    assert not [line for line in env if line.startswith(("SLURM_JWT", "SSH_AUTH_SOCK"))]
    for wrong in ("/home/ben/evil.sh", "-J", "--mem", "--mem=1\n--uid=0", "", "-"):
        if wrong != "--mem":
            with pytest.raises(SlurmRefused, match="no whole option"):
                client.submit([wrong], "", whose)


def test_options_are_read_once_more_and_ours_come_last(tmp_path: Path) -> None:
    """The config may come from a master of an earlier version."""

    def request(slots: int = 2, **slurm: object) -> tuple[str, ...]:
        order = order_of(tmp_path, slurm, slots=slots)
        return request_of(order, SlurmOptions(as_owner=False), PurePosixPath("/shared"), "c", gpus=True).arguments

    given = request(sbatch_args=["--nice=5", "--gres=tmpfs:10G", "--mem-per-gpu=4G", "--cpus-per-gpu=2"])
    assert given.index("--nice=5") < given.index("--comment=c") < given.index("--gres=gpu:2,tmpfs:10G")
    assert not [word for word in given if word.startswith(("--mem=", "--cpus-per-task"))]
    assert given[-1].startswith("--output=/shared/")
    per_node = request(sbatch_args=["--gpus-per-node=a100:2"])
    assert "--gpus-per-node=a100:2" in per_node
    assert not [word for word in per_node if word.startswith("--gres")]
    for words in (["/home/ben/evil.sh"], ["--wra=x"], ["-vJx"], ["--uid=0"], ["--gres=gpu:8"], ["--gpus-per-node=8"]):
        with pytest.raises(SetupFailed, match=r"slurm\.sbatch_args"):
            request(sbatch_args=words)
    with pytest.raises(SetupFailed, match="other GPUs than detlab counts"):
        request(0, sbatch_args=["--gpus-per-node=1"])
    with pytest.raises(SetupFailed, match="gpu_type"):
        request(gpu_type="a100:8,gpu:h100")
    with pytest.raises(SetupFailed):
        request(partition="a --uid=0")


def test_a_job_of_root_is_refused_where_jobs_have_their_owners_accounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    order = order_of(tmp_path, {})
    order.identity = replace(order.identity, uid=0, gid=0)
    with pytest.raises(SetupFailed, match="would be root's"):
        request_of(order, SlurmOptions(), PurePosixPath("/shared"), "c", gpus=True)
    order.identity = replace(order.identity, uid=1001, gid=1002)
    request = request_of(order, SlurmOptions(), PurePosixPath("/shared"), "c", gpus=True)
    assert request.whose == Whose(1001, 1002, PurePosixPath("/shared/owners/1001"))
    assert f"--output=/shared/owners/1001/{request.files}.out" in request.arguments
    assert not [word for word in request.arguments if word.startswith(("--uid", "--gid"))]


def test_what_a_job_printed_before_its_launcher_is_told() -> None:
    exit_ = exit_of("7", JobEnd("FAILED", 127, "n1"), "", "/no/python3: No such file\n", killed=False)
    assert "Slurm job 7 on n1 ended as FAILED with status 127" in exit_.message
    assert "/no/python3: No such file" in exit_.message


def test_who_was_killed_by_the_master_was_killed() -> None:
    assert exit_of("7", JobEnd("CANCELLED", 137), "", "", killed=True).exit_code == -9
    assert exit_of("7", JobEnd("FAILED", 3), said(3), "", killed=True).exit_code == 3


def test_lines_of_squeue_with_anything_in_the_comment() -> None:
    job = job_of("12|1001|PENDING|Resources|2026-11-27T16:00:00|1:00:00||2|detlab-1.a.1|a|b|c")
    assert job is not None
    assert (job.id, job.uid, job.pending, job.reason, job.start, job.node_count, job.comment) == (
        "12", 1001, True, "Resources", "2026-11-27T16:00:00", 2, "a|b|c",
    )  # fmt: skip
    assert job_of("slurm_load_jobs error") is None
    assert [status_of(code) for code in ("0:0", "3:0", "0:15", "")] == [0, 3, 143, None]


def test_lines_of_sinfo_about_partitions() -> None:
    gpu = Partition(name="gpu", default=True, time_limit="2-00:00:00", allocated=3, idle=1, other=2)
    assert partition_of("gpu*|up|2-00:00:00|3/1/2/6") == gpu
    assert partition_of("debug|drain|infinite|0/0/1/1") == Partition(name="debug", up=False, other=1)
    assert partition_of("sinfo: error: something") is None
    assert partition_of("gpu|up|infinite|1K/1/1/1") is None


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", SlurmAway),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", SlurmAway),
        ("Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size)", SlurmFull),
        ("sbatch: error: invalid partition specified: nope", SlurmRefused),
    ],
)
def test_refusals_and_silence_are_told_apart(tmp_path: Path, words: str, kind: type[Exception]) -> None:
    program = tmp_path / "squeue"
    program.write_text(f'#!/bin/sh\necho "{words}" >&2\nexit 1\n')
    program.chmod(0o755)
    with pytest.raises(kind) as raised:
        Commands(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}).jobs()
    assert type(raised.value) is kind
    assert not str(raised.value).startswith("sbatch:")


def test_only_a_regular_file_of_the_jobs_account_that_nobody_else_writes_is_its_report(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "a.exit").symlink_to(tmp_path / "secret")
    (tmp_path / "open").write_text("secret")
    (tmp_path / "open").chmod(0o666)
    os.mkfifo(tmp_path / "fifo")
    mine = Whose(os.getuid(), os.getgid())
    assert Commands().read(tmp_path / "secret", mine) == "secret"
    for name in ("a.exit", "open", "fifo", "."):
        assert Commands().read(tmp_path / name, mine) == "", name
    assert Commands().read(tmp_path / "secret", Whose(os.getuid() + 1, 0)) == "", "another's"
    (tmp_path / "long").write_text("x" * 100_000)
    assert len(Commands().read(tmp_path / "long", mine)) == 20_000


def test_by_ssh_too_only_a_regular_file_is_read(tmp_path: Path) -> None:
    """`tail` waits for the end of a FIFO: a few tasks of one user kept all threads of the agent."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    client = Commands("login-1", {"PATH": f"{tmp_path}:/usr/bin:/bin"}, patience=10)
    (tmp_path / "it's long").write_text("x" * 100_000 + "end")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "fifo")
    assert client.read(tmp_path / "it's long", Whose()).endswith("xend")
    assert len(client.read(tmp_path / "it's long", Whose())) == 20_000
    began = time.monotonic()
    for name in ("fifo", "zeros", "none", "."):
        assert client.read(tmp_path / name, Whose()) == "", name
    assert time.monotonic() - began < 4


def ended(code: int | None, at: float, reason: str = "") -> str:
    return json.dumps({"exit_code": code, "reason": reason, "ended_at": at})


@pytest.mark.parametrize(
    ("state", "reports", "decides"),
    [
        ("COMPLETED", [ended(0, 5.0), ended(0, 4.0)], 0),
        ("FAILED", [ended(1, 5.0), ended(3, 4.0)], 1),  # who failed first
        ("FAILED", [ended(-15, 4.0), ended(1, 4.1)], 1),  # not who was ended for it
        ("FAILED", ["", ended(1, 4.0)], 1),
        ("FAILED", [ended(None, 5.0, "setup"), ended(-15, 6.0)], 0),
        ("NODE_FAIL", [ended(1, 5.0), ""], None),  # it failed for want of the node
        ("CANCELLED", ["", ""], None),
        ("COMPLETED", [ended(0, 5.0), "{not json"], None),
    ],
)
def test_one_node_of_several_decides_how_a_trial_ended(state: str, reports: list[str], decides: int | None) -> None:
    assert of_ranks(reports, JobEnd(state, 1)) == ("" if decides is None else reports[decides])


def test_a_job_asks_for_what_the_config_says(tmp_path: Path) -> None:
    order = order_of(
        tmp_path,
        {"partition": "gpu", "account": "lab", "time": "90", "exclusive": True, "gpu_type": "a100",
         "leave_seconds": 300, "modules": ["cuda/12"], "setup": "echo ready", "sbatch_args": ["--mail-type=FAIL"]},
    )  # fmt: skip
    options = SlurmOptions(
        as_owner=False, python="/shared/bin/python", arguments=("--nice=5",), setup="/shared/setup.sh"
    )
    request = request_of(order, options, PurePosixPath("/shared/jobs"), "detlab agent a", gpus=True)
    wanted = {
        "--job-name=detlab-1.a.1", "--comment=detlab agent a", "--no-requeue", "--dependency=singleton", "--nodes=1",
        "--ntasks-per-node=1", "--gres=gpu:a100:2", "--mem=2048M", "--partition=gpu", "--account=lab", "--time=90",
        "--exclusive", "--signal=B:USR2@300", "--mail-type=FAIL", "--nice=5",
        f"--output=/shared/jobs/{request.files}.out",
    }  # fmt: skip
    assert wanted <= set(request.arguments)
    assert re.fullmatch(r"1\.a\.1\.[0-9a-f]{16}", request.files)
    assert request.script.index("export PATH=/shared/bin:$PATH") < request.script.index("module load cuda/12")
    assert "echo ready" in request.script
    assert ". /shared/setup.sh" in request.script
    assert request.script.rstrip().endswith(
        f"exec /shared/bin/python -s -P -m detlab.launch.elsewhere --exit-file /shared/jobs/{request.files}.exit"
    )
    subprocess.run(["bash", "-n"], input=request.script, text=True, check=True)


@pytest.mark.parametrize(
    ("container", "image", "command"),
    [
        ("apptainer", "a:1", "docker://a:1 python3 -s -P -m detlab.launch.elsewhere"),
        ("apptainer", "/shared/a.sif", "/shared/a.sif python3 -s -P -m detlab.launch.elsewhere"),
        ("pyxis", "a:1", "srun --kill-on-bad-exit=0 --container-image=a:1"),
    ],
)
def test_an_image_is_run_by_what_the_cluster_has(tmp_path: Path, container: str, image: str, command: str) -> None:
    order = order_of(tmp_path, {"container": container}, image)
    request = request_of(order, SlurmOptions(as_owner=False), PurePosixPath("/shared"), "c", gpus=False)
    assert command in request.script
    assert request.steps is (container == "pyxis")
    assert "--cpus-per-task=2" in request.arguments
    subprocess.run(["bash", "-n"], input=request.script, text=True, check=True)


@pytest.mark.parametrize("container", ["apptainer", "pyxis"])
@pytest.mark.parametrize("image", ["--bind=/etc://x", "-B", "--fakeroot", "x\n", "a b", "://", "\u2014x"])
def test_an_image_that_the_program_could_take_for_an_option_is_refused(
    tmp_path: Path, container: str, image: str
) -> None:
    order = order_of(tmp_path, {"container": container}, image)
    with pytest.raises(SetupFailed, match="is no image"):
        request_of(order, SlurmOptions(as_owner=False), PurePosixPath("/shared"), "c", gpus=False)


@pytest.mark.parametrize(
    "image",
    ["nvcr.io#nvidia/pytorch:24.01-py3", "oras://r.io/a:1", "library://lib/x", "/data/a_1+cu.sqsh", "a@sha256:0f"],
)
def test_images_of_sites_are_images(tmp_path: Path, image: str) -> None:
    order = order_of(tmp_path, {"container": "pyxis"}, image)
    assert image in request_of(order, SlurmOptions(as_owner=False), PurePosixPath("/shared"), "c", gpus=False).script


def test_a_container_without_an_image_is_refused(tmp_path: Path) -> None:
    order = order_of(tmp_path, {"container": "apptainer"})
    with pytest.raises(SetupFailed, match=r"environment\.image names no image"):
        request_of(order, SlurmOptions(as_owner=False), PurePosixPath("/shared"), "c", gpus=False)


def test_an_attempt_that_had_begun_does_not_begin_a_second_time(tmp_path: Path) -> None:
    """A controller that dies forgets jobs of its last seconds, also running ones: their attempt is submitted again."""
    script = "\n".join([*once(file_of(PurePosixPath(tmp_path), "4.ab.1")), "echo begins"])

    def run(**environment: str) -> str:
        command = ["bash", "-c", script]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert run(SLURM_RESTART_COUNT="1") == "", "Slurm has started this job before"
    (tmp_path / "4.ab.1.exit").unlink()
    assert run() == "begins\n"
    assert not (tmp_path / "4.ab.1.exit").exists()
    assert run() == ""
    assert json.loads((tmp_path / "4.ab.1.exit").read_text())["reason"] == "requeued"
    nowhere = "\n".join([*once(file_of(PurePosixPath(tmp_path / "none"), "4.ab.1")), "echo begins"])
    done = subprocess.run(["bash", "-c", nowhere], capture_output=True, text=True, check=True)
    assert done.stdout == "begins\n", "without the folder its own words say what lacks"


@pytest.mark.parametrize("container", ["none", "apptainer", "pyxis"])
def test_a_trial_over_several_nodes_is_one_job_with_a_launcher_on_each(tmp_path: Path, container: str) -> None:
    order = order_of(tmp_path, {"container": container}, "a:1", slots=4, nodes=(2, 2))
    request = request_of(order, SlurmOptions(as_owner=False), PurePosixPath("/shared"), "c", gpus=True)
    assert {"--nodes=2", "--ntasks-per-node=1", "--gres=gpu:2"} <= set(request.arguments)
    assert (request.nodes, request.steps) == (2, False)
    assert "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=0" in request.script
    assert "export DET_NODE_RANK=$SLURM_PROCID" in request.script
    assert ("--container-image=a:1" in request.script) is (container == "pyxis")
    assert ("docker://a:1" in request.script) is (container == "apptainer")
    subprocess.run(["bash", "-n"], input=request.script, text=True, check=True)
    left = {str(path) for path in files_of(PurePosixPath("/shared"), "1.a.1", request.nodes)}
    assert {"/shared/1.a.1.exit.0", "/shared/1.a.1.exit.1", "/shared/1.a.1.chief", "/shared/1.a.1.exit"} <= left


def test_nodes_with_different_numbers_of_slots_are_refused(tmp_path: Path) -> None:
    order = order_of(tmp_path, {}, slots=3, nodes=(2, 1))
    with pytest.raises(SetupFailed, match="nodes of 2, 1 slots"):
        request_of(order, SlurmOptions(as_owner=False), PurePosixPath("/shared"), "c", gpus=True)


NODE = "NodeName=n7 Arch=x86_64 CoresPerSocket=4 NodeAddr={address} NodeHostName=n7"


@pytest.mark.parametrize(
    ("address", "names", "expected"),
    [
        ("10.1.0.7", "10.1.0.7 STREAM 10.1.0.7", ["10.1.0.7"]),
        ("n7-ib", "10.1.0.7 STREAM n7-ib\n10.1.0.7 DGRAM\n10.2.0.7 STREAM", ["10.1.0.7", "10.2.0.7"]),
        ("n7", "", ["n7"]),
    ],
)
def test_a_node_is_reached_where_slurm_says(tmp_path: Path, address: str, names: str, expected: list[str]) -> None:
    for program, text in (("scontrol", NODE.format(address=address)), ("getent", names)):
        path = tmp_path / program
        path.write_text(f"#!/bin/sh\nprintf '%s\\n' '{text}'\n[ -n '{text}' ]\n")
        path.chmod(0o755)
    assert Commands(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}).addresses_of("n7") == expected


@pytest.mark.parametrize(
    ("node", "own", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),  # all on one machine
        ("n7", "127.0.1.1", "10.9.0.7"),
        ("n7", "10.1.0.7", "10.1.0.7"),
        ("", "127.0.1.1", "10.9.0.7"),
    ],
)
def test_a_job_knows_an_address_at_which_others_reach_its_node(
    tmp_path: Path, node: str, own: str, expected: str
) -> None:
    order = order_of(tmp_path, {})
    script = request_of(order, SlurmOptions(as_owner=False), PurePosixPath("/shared"), "c", gpus=True).script
    lines = [line for line in script.splitlines() if "DET_NODE_ADDRESS" in line or "hostname" in line]
    for program, text in (
        ("scontrol", NODE.format(address=node) if node else ""),
        ("getent", f"{own} STREAM"),
        ("hostname", "10.9.0.7 172.17.0.1"),
    ):
        path = tmp_path / program
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)
    found = subprocess.run(
        ["bash", "-c", "\n".join([*lines, "echo $DET_NODE_ADDRESS"])],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == expected, (lines, found.stderr)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Resources", "Slurm job 7: Resources, expected to start 2027-01-01 10:00:00"),
        ("None", "Slurm job 7: waits for its turn, expected to start 2027-01-01 10:00:00"),
        ("JobHeldUser", "JobHeldUser: it does not start by itself, somebody holds it (scontrol release)"),
    ],
)
def test_a_job_that_waits_for_somebody_is_told_from_one_that_waits_for_its_turn(reason: str, said: str) -> None:
    assert said in task._waiting(SlurmJob("7", "PENDING", reason, "2027-01-01T10:00:00"))


class Forgetful(Commands):
    """A Slurm that does not know the job any more; what the job left comes late."""

    def __init__(self, *reports: str) -> None:
        super().__init__()
        self.reports = list(reports)

    def end_of(self, job_id: str, name: str) -> JobEnd | None:
        return None

    def read(self, path: PurePath, whose: Whose) -> str:
        if path.suffix != ".exit":
            return ""
        return self.reports.pop(0) if self.reports else ""


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        (["", "", said(0)], (0, "")),
        (["", said(-9)], (None, "machine_restarted")),  # its node has ended it, since nobody knows it
        ([], (None, "machine_restarted")),
    ],
)
async def test_the_nodes_get_the_time_to_end_a_job_that_slurm_has_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: list[str], expected: tuple[int | None, str]
) -> None:
    """The next job got its number, and was ended for it: a third attempt."""
    monkeypatch.setattr(task, "FORGOTTEN", 0.3)
    client = Forgetful(*reports)
    watch = JobWatch(client, "c", 1.0)
    began = time.monotonic()
    one = SlurmTask(
        "1.a.1", 1, (), tmp_path / "record.json", client=client, watch=watch, directory=PurePosixPath("/shared"),
        job_id="7",
    )  # fmt: skip
    ended = await one.finished()
    assert (ended.exit_code, ended.reason) == expected
    assert client.reports == []
    assert reports or time.monotonic() - began >= 0.3


async def test_the_hubs_proxy_is_sent_to_the_jobs_own_node_whatever_the_job_says(tmp_path: Path) -> None:
    class Cluster(Commands):
        def read(self, path: PurePath, whose: Whose) -> str:
            return "169.254.169.254 80"

        def addresses_of(self, node: str) -> list[str]:
            return {"n7": ["10.1.0.7"]}[node]

    task = SlurmTask(
        "1.a.1", 1, (), tmp_path / "record.json", client=Cluster(), watch=JobWatch(Cluster(), "c", 1.0),
        directory=PurePosixPath("/shared"), serves=True, certificate_later=True,
    )  # fmt: skip
    assert await task._reached("n7")
    assert (task.address, task.port, task.secure) == ("10.1.0.7", 80, True)
    noted = json.loads((tmp_path / "record.json").read_text())
    assert SlurmTask.noted(tmp_path / "record.json", noted)["secure"] is True


@pytest.mark.parametrize("port", ["0", "65536", "\u00b2", "-1", "9" * 5000, "80 81", "", "+80", "1e3"])
async def test_a_port_that_is_none_is_not_taken(tmp_path: Path, port: str) -> None:
    class Cluster(Commands):
        def read(self, path: PurePath, whose: Whose) -> str:
            return f"10.1.0.7 {port}"

    task = SlurmTask(
        "1.a.1", 1, (), tmp_path / "record.json", client=Cluster(), watch=JobWatch(Cluster(), "c", 1.0),
        directory=PurePosixPath("/shared"), serves=True,
    )  # fmt: skip
    assert not await task._reached("n7")


@pytest.mark.parametrize("later", [False, True])
def test_a_service_whose_address_is_known_later_is_told_to_ask_for_its_certificate(tmp_path: Path, later: bool) -> None:
    order = order_of(tmp_path, {})
    order.launch.service = ServiceSpec(certificate_later=later)
    script = request_of(order, SlurmOptions(as_owner=False), PurePosixPath("/shared"), "c", gpus=True).script
    assert ("export DET_ASK_CERTIFICATE=1" in script) is later


@pytest.mark.parametrize("container", ["none", "apptainer", "pyxis"])
def test_a_trial_without_hyperparameters_is_started_by_the_program_that_asks_for_them(
    tmp_path: Path, container: str
) -> None:
    order = order_of(tmp_path, {"container": container}, "a:1")
    order.launch.point_due = True
    script = request_of(order, SlurmOptions(as_owner=False), PurePosixPath("/shared"), "c", gpus=True).script
    assert "-m detlab.launch.elsewhere" not in script
    sent = Path(late_point.__file__).read_text(encoding="utf-8")
    assert shlex.quote(sent) in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_each_node_of_a_trial_without_hyperparameters_asks_for_them(tmp_path: Path) -> None:
    order = order_of(tmp_path, {}, slots=4, nodes=(2, 2), point_due=True)
    script = request_of(order, SlurmOptions(as_owner=False), PurePosixPath("/shared"), "c", gpus=True).script
    sent = Path(late_point.__file__).read_text(encoding="utf-8")
    (node,) = [word for word in shlex.split(script) if shlex.quote(sent) in word]
    assert shlex.split(node)[-3:] == [sent, "--exit-file", "$exit_file.$SLURM_PROCID"]
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def test_features_of_a_governed_pool_are_beside_the_users_and_the_operators_and_cannot_be_undone(
    tmp_path: Path,
) -> None:
    def request(*operators: str, **slurm: object) -> tuple[str, ...]:
        order = order_of(tmp_path, slurm, slurm_features=["governed", "vault"])
        options = SlurmOptions(as_owner=False, arguments=operators)
        return request_of(order, options, PurePosixPath("/shared"), "c", gpus=True).common

    def last(words: tuple[str, ...]) -> str:
        return [word for word in words if word.startswith("--constraint")][-1]

    assert last(request()) == "--constraint=governed&vault"
    words = request("--constraint=rack1", constraint="a100&vault", sbatch_args=["--constraint=nvlink"])
    assert last(words) == "--constraint=a100&vault&nvlink&rack1&governed"
    assert words[-1] == last(words), "the last one counts"
    assert words.count("--constraint=nvlink") == 0
    for odd in ("a100|governed", "[a100*1&governed*0]", "governed*1"):
        with pytest.raises(SetupFailed, match=r"can only be features joined by &|slurm\.sbatch_args"):
            request(constraint=odd)
