"""A user of a Slurm cluster against the other users of its agent: options, files, names and lists of jobs."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detlab.schemas.sbatch import OPTIONS, SbatchNotAllowed, option_of, parse_sbatch
from detlab.testing.master import FakeAllocation, MasterDouble
from detlab_agent.runtimes.slurm.client import Commands, SlurmRefused, Whose
from testbed import processes
from testbed.sbatch_words import ALLOWED, HOSTILE, SBATCH
from testbed.slurm import SlurmCluster, accounts_for, missing
from testbed.waiting import until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(300)]

MINUTE = 60
WHO = ["python3", "-c", "import os; print(os.getuid(), os.getgroups(), os.environ.get('SECRET'))"]


@dataclass
class Place:
    """Slurm, an agent of root's, and the accounts of its users."""

    folder: Path
    slurm: SlurmCluster
    master: MasterDouble
    uids: dict[str, int]

    @property
    def jobs(self) -> Path:
        """The shared folder."""
        return self.folder / "jobs"

    def launch(self, owner: str, entrypoint: list[str], **more: Any) -> FakeAllocation:
        """Launch a task of a user's, as their config may have it."""
        more.setdefault("slots", ["any0"])
        return self.master.launch(entrypoint, runtime="slurm", owner=owner, uid=self.uids[owner], **more)

    def ended(self, task: FakeAllocation) -> Any:
        """Wait for the end of a task; return how it ended."""
        return self.master.wait_for(lambda: task.exits, timeout=MINUTE)[0]

    def starts(self, task: FakeAllocation) -> None:
        """Wait until a task has said something."""
        self.master.wait_for(lambda: self.master.texts(task, "stdout"), timeout=MINUTE)

    def by(self, user: str, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command as a user."""
        uid = self.uids[user]
        command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *words]
        return subprocess.run(
            command, env=self.slurm.environ, input=given, capture_output=True, text=True, timeout=MINUTE, check=False
        )

    def job_of(self, task: FakeAllocation) -> str:
        """The number of a task's job."""
        name = f"detlab-{task.launch.allocation_id}"

        def found() -> list[str]:
            lines = self.slurm.ask("squeue", "-h", "-o", "%A %U %j").splitlines()
            uid = str(self.uids[task.launch.owner])
            return [line.split()[0] for line in lines if line.split()[1:] == [uid, name]]

        until(found, lambda: self.slurm.ask("squeue"), MINUTE)
        return found()[0]


@contextmanager
def agent(place: Place, *more: str, name: str = "agent") -> Iterator[str]:
    """`det agent run --slurm`, by root; its name for the master."""
    token = place.folder / f"{name}-token"
    token.touch(mode=0o600)
    token.write_text(place.master.enrolment_token, encoding="ascii")
    words = [sys.executable, "-P", "-m", "detlab_agent", "--master", place.master.url, "--name", name, "--slurm"]
    words += ["--slurm-interval", "0.3", "--dir", str(place.folder / name), "--enrolment-token-file", str(token), *more]
    environ = {**os.environ, "SLURM_CONF": str(place.slurm.conf), "SECRET": "of the operator"}
    with (place.folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(words, cwd="/", env=environ, stdout=log, stderr=log)
    try:
        place.master.wait_for(lambda: place.master.connected(name), timeout=MINUTE, what="the agent connects")
        yield name
    finally:
        processes.end(process, 20)
        print((place.folder / f"{name}.log").read_text(encoding="utf-8")[-6000:])


@pytest.fixture(scope="module")
def made() -> Iterator[Place]:
    if why := missing():
        pytest.skip(f"no Slurm here: {why}")
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="detlab-hostile-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)
        slurm = stack.enter_context(SlurmCluster(folder / "slurm"))
        uids = stack.enter_context(accounts_for("ada", "mallory"))
        master = stack.enter_context(MasterDouble())
        yield Place(folder, slurm, master, uids)


@pytest.fixture(scope="module")
def place(made: Place) -> Iterator[Place]:
    with agent(made, "--slurm-dir", str(made.jobs)):
        yield made


def test_a_job_has_its_owners_account_and_nothing_of_the_operators(place: Place) -> None:
    task = place.launch("mallory", WHO)
    assert place.ended(task).exit_code == 0, place.ended(task)
    uid, *groups = place.master.texts(task, "stdout")[0].split()
    assert int(uid) == place.uids["mallory"]
    assert "0" not in " ".join(groups).strip("[]").split(), "no group of root's"
    assert groups[-1] == "None"


@pytest.fixture
def evil(place: Place) -> Iterator[Path]:
    """A script of mallory's, which leaves a mark where it ran and as whom."""
    folder = Path(tempfile.mkdtemp(prefix="evil-", dir=place.folder))
    folder.chmod(0o777)
    script = folder / "evil.sh"
    script.write_text(f"#!/bin/bash\nid -u > {folder}/mark-$$\n")
    script.chmod(0o755)
    yield script
    assert not list(folder.glob("mark-*")), "it has run"


@pytest.mark.parametrize(
    "words",
    [
        ["{evil}"], ["--wra={evil}"], ["--wrap={evil}"], ["--export-f={secret}"], ["--export-file={secret}"],
        ["--ui=0", "--gi=0"], ["--uid=0"], ["--job-na=x"], ["-vJx"], ["--arra=0-3"], ["--outp={evil}.out"],
        ["--mail-type", "{evil}"], ["--nodelist={secret}"], ["--exclude={secret}"], ["--bbf={secret}"],
        ["--priority=4294967294"], ["--nice=-100"], ["--gres=gpu:2"], ["--gpus-per-node=2"], ["--mem=1G {evil}"],
    ],
)  # fmt: skip
def test_no_option_runs_something_else_or_as_somebody_else(place: Place, evil: Path, words: list[str]) -> None:
    """As an earlier master, or one that was deceived, would hand it over: the agent itself reads it once more."""
    secret = place.folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("SECRET=of-root\0", encoding="ascii")
    given = [word.format(evil=evil, secret=secret) for word in words]
    before = place.slurm.ask("squeue", "-h", "--states=all", "-o", "%A")
    task = place.launch("mallory", WHO, config={"slurm": {"sbatch_args": given}})
    exit_ = place.ended(task)
    assert (exit_.exit_code, exit_.reason) == (None, "setup"), exit_
    assert "slurm.sbatch_args" in exit_.message
    assert place.slurm.ask("squeue", "-h", "--states=all", "-o", "%A") == before, "there is no job"


@pytest.mark.parametrize("text", HOSTILE)
def test_what_the_parser_refuses_never_reaches_sbatch(text: str) -> None:
    with pytest.raises(SbatchNotAllowed):
        parse_sbatch(text)


def test_every_option_of_this_sbatch_is_known_here_and_no_abbreviation_of_one_is_taken(place: Place) -> None:
    told = place.slurm.ask("sbatch", "--help") + place.slurm.ask("sbatch", "--usage")
    names = set(re.findall(r"--([a-z]+(?:-[a-z]+)*)", told))
    assert len(names) > 80
    assert names <= {*SBATCH, "ntasks"}, "the tests know this version's options"
    for name in names:
        for length in range(1, len(name)):
            if name[:length] not in OPTIONS:
                for text in (f"--{name[:length]}", f"--{name[:length]}=1"):
                    with pytest.raises(SbatchNotAllowed):
                        parse_sbatch(text)


def misread(place: Place, text: str) -> str:
    """What the real sbatch says of an option if it reads it as something else than that whole option; else nothing."""
    script = "#!/bin/bash\ntrue\n"
    done = place.by("mallory", "sbatch", "--test-only", "--output=/dev/null", text, given=script)
    told = done.stdout + done.stderr
    wrong = ("unrecognized option", "is ambiguous", "unable to open", "requires an arg", "allow an arg", "hostfile")
    return told if any(one in told.lower() for one in wrong) else ""


@pytest.mark.parametrize("text", ALLOWED)
def test_what_the_parser_allows_is_one_option_to_the_real_sbatch_and_stays_its_owners(place: Place, text: str) -> None:
    assert not misread(place, text)
    uid = place.uids["mallory"]
    whose = Whose(uid, uid, place.jobs / "owners" / str(uid))
    client = Commands(environ=place.slurm.environ, everyone=True)
    own = ["--job-name=ours", "--comment=of ours", "--output=/dev/null", "--signal=B:USR2@60"]
    begin = [] if text.startswith("--begin") else ["--begin=now+1hour"]
    try:
        job_id = client.submit([parse_sbatch(text).render(), *begin, *own], "#!/bin/bash\ntrue\n", whose)
    except SlurmRefused:
        return  # this Slurm has no such feature, node, or license
    job = client.job(job_id)
    client.cancel(job_id, "ours")
    assert job is not None
    assert (job.uid, job.name, job.comment, job.id) == (uid, "ours", "of ours", job_id)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_values_of_all_forms_are_one_option_to_the_real_sbatch(place: Place, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(set(OPTIONS) - {"prefer"})))
    pattern = re.compile(OPTIONS[name].pattern, re.ASCII)
    value = data.draw(st.from_regex(pattern, fullmatch=True))
    if not OPTIONS[name].fits(value) or not value.isascii():
        return
    text = option_of(name, value).render()
    assert parse_sbatch(text).render() == text
    assert not misread(place, text)


def test_sbatch_itself_has_no_more_rights_than_the_owner(place: Place) -> None:
    """An operator's rights would let it have any priority and QoS, and read any file."""
    from detlab_agent.runtimes.slurm.client import Commands, SlurmRefused, Whose

    uid = place.uids["mallory"]
    whose = Whose(uid, uid, place.jobs / "owners" / str(uid))
    client = Commands(environ=place.slurm.environ, everyone=True)
    for words in (["--nice=-5"], ["--nodelist=/etc/shadow"], ["--uid=0"]):
        with pytest.raises(SlurmRefused):
            client.submit([*words, "--output=/dev/null"], "#!/bin/bash\ntrue\n", whose)
    with pytest.raises(SlurmRefused, match="no whole option"):
        client.submit(["/etc/shadow"], "#!/bin/bash\ntrue\n", whose)


def test_nobody_reaches_the_files_of_anothers_jobs(place: Place) -> None:
    task = place.launch("ada", ["python3", "-u", "-c", "import time; print('here'); time.sleep(600)"])
    place.starts(task)
    ada, mallory = place.uids["ada"], place.uids["mallory"]
    (begun,) = (place.jobs / "owners" / str(ada)).glob(f"{task.launch.allocation_id}.*.begun")
    files = begun.with_suffix("")
    for words in (
        ["ls", str(begun.parent)], ["ls", str(place.jobs / "owners")], ["cat", str(begun)],
        ["touch", f"{files}.exit"], ["touch", f"{files}.service"], ["ln", "-s", "/etc/passwd", f"{files}.exit"],
        ["touch", str(place.jobs / "owners" / "x")], ["touch", str(place.jobs / f"{task.launch.allocation_id}.exit")],
        ["mv", str(begun.parent), str(place.folder / "x")], ["rmdir", str(begun.parent)],
        ["ln", str(begun), str(place.jobs / "owners" / str(mallory) / "x")],
    ):  # fmt: skip
        assert place.by("mallory", *words).returncode, words
    assert place.by("ada", "ls", str(begun.parent)).returncode == 0, "they are their owner's"
    assert not task.exits
    place.master.send_kill(task, grace=1.0)
    assert place.ended(task).exit_code not in {0, None}


def test_a_file_of_another_account_is_no_report(place: Place) -> None:
    """As where an earlier version's folder, in which all could write, is still in use."""
    task = place.launch(
        "ada", ["python3", "-u", "-c", "import time; print('here'); time.sleep(8); raise SystemExit(5)"]
    )
    place.starts(task)
    folder = place.jobs / "owners" / str(place.uids["ada"])
    (begun,) = folder.glob(f"{task.launch.allocation_id}.*.begun")
    forged = begun.with_suffix(".exit")
    forged.write_text('{"exit_code": 0, "reason": "", "message": ""}', encoding="ascii")
    os.chown(forged, place.uids["mallory"], place.uids["mallory"])
    assert place.ended(task).exit_code != 0, "only its own account says how it ended"


def test_a_job_that_looks_like_anothers_is_not_taken_for_it(place: Place) -> None:
    task = place.launch(
        "ada", ["python3", "-u", "-c", "import time; print('here'); time.sleep(6); raise SystemExit(5)"]
    )
    name, comment = f"detlab-{task.launch.allocation_id}", "detlab agent agent"
    forged = f"1|{place.uids['ada']}|COMPLETED|None|||n0|1|{name}|{comment}"
    script = "#!/bin/bash\nsleep 30\n"
    made = [f"--job-name={name}", f"--comment={comment}"], [f"--job-name=x\n{forged}", f"--comment=y\n{forged}"]
    for words in made:
        done = place.by("mallory", "sbatch", "--parsable", "--output=/dev/null", *words, given=script)
        assert done.stdout.strip().isdigit(), done.stderr
    exit_ = place.ended(task)
    assert (exit_.exit_code, exit_.reason) == (5, ""), exit_
    place.slurm.ask("scancel", "-u", str(place.uids["mallory"]))


def test_the_name_of_a_job_removes_no_files(place: Place) -> None:
    folder = place.folder / "home"
    folder.mkdir(exist_ok=True)
    names = [folder / f"diary{end}" for end in (".out", ".exit", ".service", ".begun")]
    for path in names:
        path.write_text("dear diary", encoding="ascii")
    words = ["--output=/dev/null", "--job-name=detlab-../home/diary", "--comment=detlab agent agent"]
    done = place.by("mallory", "sbatch", "--parsable", *words, given="#!/bin/bash\nsleep 60\n")
    job = done.stdout.strip()
    until(
        lambda: "CANCELLED" in place.slurm.ask("squeue", "-h", "--states=all", "-j", job, "-o", "%T"),
        lambda: place.slurm.ask("squeue", "--states=all"),
        MINUTE,
    )
    place.ended(place.launch("ada", WHO))  # some more looks
    assert all(path.exists() for path in names)


def test_a_job_that_its_user_renames_ends_for_the_agent_and_is_left_to_its_user(place: Place) -> None:
    task = place.launch("mallory", ["python3", "-u", "-c", "import time; print('here'); time.sleep(60)"])
    place.starts(task)
    job = place.job_of(task)
    assert not place.by("mallory", "scontrol", "update", f"JobId={job}", "JobName=mine").returncode
    exit_ = place.ended(task)
    assert exit_.reason == "machine_restarted"
    assert "renamed" in exit_.message
    place.slurm.ask("scancel", job)


@pytest.mark.parametrize("user", ["ada", "mallory"])
def test_an_agent_of_one_user_takes_nobody_elses_task(made: Place, user: str) -> None:
    options = ("--slurm-as", "agent", "--serves-user", "ada", "--slurm-dir", str(made.folder / "adas-jobs"))
    with agent(made, *options, name="ones"):
        assert made.master.hellos[-1].serves_user == "ada", "so the master places nobody else's there"
        task = made.master.allocate(WHO, runtime="slurm", owner=user, uid=made.uids[user], slots=["any0"])
        made.master.send(task.launch, "ones")
        exit_ = made.ended(task)
        if user == "ada":
            assert exit_.exit_code == 0, exit_
        else:
            assert exit_.reason == "refused"
            assert "serves user 'ada' only" in exit_.message
    assert (made.folder / "adas-jobs").stat().st_mode & 0o077 == 0


def test_an_agent_that_is_not_root_serves_the_user_that_runs_it(made: Place) -> None:
    account = pwd.getpwuid(made.uids["ada"]).pw_name
    folder = made.folder / "adas"
    folder.mkdir(exist_ok=True)
    token = folder / "token"
    token.touch(mode=0o600)
    token.write_text(made.master.enrolment_token, encoding="ascii")
    for path in (folder, token):
        os.chown(path, made.uids["ada"], made.uids["ada"])
    uid = made.uids["ada"]
    words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", sys.executable, "-P", "-m"]
    words += ["detlab_agent", "--master", made.master.url, "--name", "adas", "--slurm", "--dir", str(folder / "agent")]
    words += ["--enrolment-token-file", str(token)]
    environ = {**made.slurm.environ, "HOME": str(folder), "DET_TRUSTED_UIDS": "0"}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(words, cwd="/", env=environ, stdout=log, stderr=log)
    try:
        made.master.wait_for(lambda: made.master.connected("adas"), timeout=MINUTE)
        assert made.master.hellos[-1].serves_user == account
    finally:
        processes.end(process, 20)
        print((folder / "log").read_text(encoding="utf-8")[-3000:])
