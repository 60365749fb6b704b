"""Which tasks are submitted together as a job array, and what becomes of each: no Slurm is needed for these."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath, PurePosixPath

import pytest
from slurm_orders import order_of

from detlab.schemas.wire import ServiceSpec
from detlab_agent.runtimes.slurm import arrays as arrays_module
from detlab_agent.runtimes.slurm.answers import JobEnd, SlurmJob, each_of
from detlab_agent.runtimes.slurm.arrays import ArrayMember, Arrays, alike, array_of
from detlab_agent.runtimes.slurm.client import Commands, SlurmAway, SlurmFull, SlurmRefused, Whose
from detlab_agent.runtimes.slurm.options import SlurmOptions
from detlab_agent.runtimes.slurm.script import JobRequest, files_of, request_of
from detlab_agent.runtimes.slurm.task import SlurmTask
from detlab_agent.runtimes.slurm.watch import MOST_ENDED, JobWatch

SHARED = PurePosixPath("/shared")


def request(
    tmp_path: Path,
    number: int = 0,
    owner: str = "alice",
    directory: PurePosixPath = SHARED,
    options: SlurmOptions | None = None,
    slots: int = 1,
    image: str = "",
    **slurm: object,
) -> JobRequest:
    order = order_of(tmp_path, slurm, image, slots, allocation_id=f"1.a.{number}")
    order.launch.owner = owner
    return request_of(order, options or SlurmOptions(as_owner=False), directory, "detlab agent a", gpus=True)


# --- which tasks may be in one array ----------------------------------------------------------------------


def test_tasks_that_differ_in_what_they_are_made_of_alone_are_alike(tmp_path: Path) -> None:
    one, other = request(tmp_path, 1), request(tmp_path, 2)
    assert one.parcel != other.parcel
    assert alike(one) == alike(other)


@pytest.mark.parametrize(
    "other",
    [
        {"owner": "bob"},
        {"slots": 2},
        {"partition": "gpu"},
        {"time": "60"},
        {"setup": "echo hello"},
        {"modules": ["cuda/12"]},
        {"container": "apptainer", "image": "b:1"},
        {"sbatch_args": ["--mail-type=FAIL"]},
    ],
)
def test_tasks_of_other_users_or_with_other_jobs_are_not(tmp_path: Path, other: dict[str, object]) -> None:
    assert alike(request(tmp_path)) != alike(request(tmp_path, **other))  # type: ignore[arg-type]


def test_what_is_reached_or_on_several_nodes_is_always_a_job_of_its_own(tmp_path: Path) -> None:
    serves = order_of(tmp_path, {})
    serves.launch.service = ServiceSpec()
    gang = order_of(tmp_path, {}, slots=4, nodes=(2, 2))
    for order in (serves, gang):
        assert request_of(order, SlurmOptions(as_owner=False), SHARED, "c", gpus=True).like is None
    assert request(tmp_path).like is not None


# --- the script -------------------------------------------------------------------------------------------


def test_each_job_of_an_array_finds_its_own_parcel_and_leaves_files_of_its_own(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$DET_PARCEL"; echo "$@"\n')
    python.chmod(0o755)
    shared = tmp_path / "it's shared"
    shared.mkdir()
    options = SlurmOptions(as_owner=False, python=str(python))
    requests = {n: request(tmp_path, n, directory=PurePosixPath(shared), options=options) for n in (0, 1, 3)}
    arguments, script = array_of("array-1.a.0", "array-1.a.0.t0k3n", requests)
    assert {
        "--job-name=detlab-array-1.a.0", "--array=0,1,3", f"--output={shared}/array-1.a.0.t0k3n_%a.out", "--gres=gpu:1",
        "--no-requeue",
    } <= set(arguments)  # fmt: skip
    assert not [word for word in arguments if word.startswith("--dependency")], "or its jobs would wait for each other"

    def run(index: int) -> list[str]:
        done = subprocess.run(
            ["bash"], input=script, env={"SLURM_ARRAY_TASK_ID": str(index), "PATH": "/usr/bin:/bin"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.splitlines()

    for index in requests:
        parcel, words = run(index)
        told = json.loads(gzip.decompress(base64.b64decode(parcel)))
        assert told["launch"]["allocation_id"] == f"1.a.{index}"
        assert words.endswith(f"--exit-file {shared}/array-1.a.0.t0k3n_{index}.exit")
        assert (shared / f"array-1.a.0.t0k3n_{index}.begun").exists()
    assert run(1) == [], "it has begun before"
    assert json.loads((shared / "array-1.a.0.t0k3n_1.exit").read_text())["reason"] == "requeued"


# --- gathering --------------------------------------------------------------------------------------------


@dataclass
class Cluster(Commands):
    """A cluster that takes arrays as it is told to."""

    largest: int = 1001
    answers: list[Exception | None] = field(default_factory=list)
    """Of the next submissions; None: it takes the array."""
    arrays: list[Sequence[str]] = field(default_factory=list)
    there: list[SlurmJob] = field(default_factory=list)

    def submit(self, arguments: Sequence[str], script: str, whose: Whose) -> str:
        self.arrays.append(arguments)
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        return str(len(self.arrays))

    def jobs(self) -> list[SlurmJob]:
        return self.there

    def largest_array(self) -> int:
        return self.largest

    def indices(self) -> list[str]:
        return [word.partition("=")[2] for words in self.arrays for word in words if word.startswith("--array")]


@pytest.fixture(autouse=True)
def short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays_module, "GATHER", 0.05)


@dataclass
class Place:
    tmp_path: Path
    cluster: Cluster
    watch: JobWatch
    unwanted: set[int] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    notes: list[int] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    turns: bool = False

    def member(self, number: int, **more: object) -> ArrayMember:
        return ArrayMember(
            request(self.tmp_path, number, **more),  # type: ignore[arg-type]
            lambda label, files: self.calls.append(label),
            lambda: self.notes.append(number),
            lambda: number not in self.unwanted,
            lambda stage, message: self.said.append(message),
            number if self.turns else 0,
        )

    async def submitted(self, most: int, count: int, before: Callable[[], None] = lambda: None) -> list[str | None]:
        arrays = Arrays(self.cluster, self.watch, most)
        looks = asyncio.create_task(self.watch.run())
        try:
            numbers = sorted(range(count), reverse=self.turns)
            waiting = [asyncio.create_task(arrays.submit(self.member(number))) for number in numbers]
            await asyncio.sleep(0)
            before()
            return await asyncio.wait_for(asyncio.gather(*waiting), 20)
        finally:
            await arrays.close()
            looks.cancel()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    cluster = Cluster()
    return Place(tmp_path, cluster, JobWatch(cluster, "detlab agent a", 0.05))


async def test_what_comes_together_is_one_array_and_noted_before_it_is_submitted(place: Place) -> None:
    place.cluster.answers = [SlurmRefused("stop here")]
    await place.submitted(10, 3)
    assert sorted(place.notes) == [0, 1, 2], "noted, though it was never taken"
    assert place.calls == [f"array-1.a.0_{index}" for index in range(3)]
    assert await place.submitted(10, 3) == ["2_0", "2_1", "2_2"]
    assert place.cluster.indices() == ["0,1,2", "0,1,2"]


async def test_those_of_an_array_are_in_the_order_in_which_the_master_handed_them_over(place: Place) -> None:
    place.turns = True
    assert await place.submitted(10, 3) == ["1_2", "1_1", "1_0"], "they were made in another"


@pytest.mark.parametrize(("most", "largest"), [(2, 1001), (10, 2)])
async def test_no_array_is_larger_than_asked_for_nor_than_the_cluster_takes(
    place: Place, most: int, largest: int
) -> None:
    place.cluster.largest = largest
    ids = await place.submitted(most, 5)
    assert sorted(place.cluster.indices()) == ["0,1", "0,1"]
    assert ids[4] is None, "the last one is alone, and is a plain job"


async def test_where_there_are_no_arrays_each_is_a_job_of_its_own(place: Place) -> None:
    place.cluster.largest = 0
    assert await place.submitted(10, 3) == [None] * 3
    assert not place.cluster.arrays


async def test_no_script_is_larger_than_slurm_takes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    parcel = len(request(place.tmp_path, 0).parcel)
    monkeypatch.setattr(arrays_module, "LARGEST_SCRIPT", int(parcel * 2.5))
    assert None not in await place.submitted(10, 4)
    assert place.cluster.indices() == ["0,1", "0,1"]


@pytest.mark.parametrize("refusal", [SlurmRefused("Invalid account"), SlurmFull("MaxSubmitJobsPerUser")])
async def test_each_of_an_array_that_is_refused_is_submitted_by_itself(place: Place, refusal: SlurmRefused) -> None:
    """Perhaps Slurm takes some of them: an array that never fits would wait forever."""
    place.cluster.answers = [refusal]
    assert await place.submitted(10, 3) == [None] * 3


async def test_who_is_told_to_end_in_time_is_not_in_it(place: Place) -> None:
    assert await place.submitted(10, 3, lambda: place.unwanted.add(1)) == ["1_0", None, "1_2"]
    assert place.cluster.indices() == ["0,2"]


async def test_an_array_whose_number_got_lost_is_found_and_not_submitted_again(place: Place) -> None:
    def taken() -> None:
        place.cluster.there = [
            SlurmJob(f"71_{index}", "PENDING", name="detlab-array-1.a.0", comment="detlab agent a") for index in (1, 2)
        ]  # the first one has ended and is forgotten

    for index in range(3):
        place.watch.know(f"array-1.a.0_{index}", None)
    place.cluster.answers = [SlurmAway("socket timed out")]
    assert await place.submitted(10, 3, taken) == ["71_0", "71_1", "71_2"]
    assert len(place.cluster.arrays) == 1
    assert place.said == ["Slurm does not answer: socket timed out"] * 3


async def test_an_array_that_never_came_is_submitted_again_without_those_that_ended_meanwhile(place: Place) -> None:
    place.cluster.answers = [SlurmAway("socket timed out")]
    real = place.cluster.submit

    def submit(arguments: Sequence[str], script: str, whose: Whose) -> str:
        try:
            return real(arguments, script, whose)
        finally:
            place.unwanted.add(0)

    place.cluster.submit = submit  # type: ignore[method-assign]
    assert await place.submitted(10, 3) == [None, "2_1", "2_2"]
    assert place.cluster.indices() == ["0,1,2", "1,2"]
    names = {word for words in place.cluster.arrays for word in words if word.startswith("--job-name")}
    assert names == {"--job-name=detlab-array-1.a.0"}, "or a late one could not be told as its double"


async def test_a_task_that_fails_in_it_leaves_nobody_waiting(place: Place) -> None:
    place.cluster.answers = [RuntimeError("the thread is gone")]
    with pytest.raises(RuntimeError, match="the thread is gone"):
        await place.submitted(10, 3)


# --- one of an array --------------------------------------------------------------------------------------


def test_a_job_of_an_array_goes_by_the_arrays_name_and_its_index() -> None:
    assert SlurmJob("71_4", "RUNNING", name="detlab-array-1.a.0").label == "array-1.a.0_4"
    assert SlurmJob("71", "RUNNING", name="detlab-1.a.0").label == "1.a.0"
    assert [SlurmJob(id_, "").number for id_ in ("71_4", "71_[4-9]", "71+0", "72", "")] == [71, 71, 71, 72, 0]


def test_those_of_an_array_that_wait_are_told_apart_though_slurm_lists_them_as_one() -> None:
    def ids(listed: str) -> list[str]:
        return [job.id for job in each_of(SlurmJob(listed, "PENDING"))]

    assert ids("71_[3,5-7]") == ["71_3", "71_5", "71_6", "71_7"]
    assert ids("71_[0-6:3,9%4]") == ["71_0", "71_3", "71_6", "71_9"]
    for other in ("71", "71_4", "71+0", "71_[1,...]", "71_[]"):
        assert ids(other) == [other]


def test_a_task_is_found_again_by_its_label(tmp_path: Path) -> None:
    cluster = Cluster()
    watch = JobWatch(cluster, "c", 1.0)
    record = tmp_path / "1.a.0.json"
    task = SlurmTask("1.a.0", 1, (), record, client=cluster, watch=watch, directory=SHARED)
    assert "label" not in task.values()
    task.request = request(tmp_path)
    task._call("array-1.a.0_4", "array-1.a.0.t0k3n_4")
    task._note("71_4")
    assert task._name == "detlab-array-1.a.0"
    assert task.files == "array-1.a.0.t0k3n_4"
    found = SlurmTask.noted(record, json.loads(record.read_text()))
    assert (found["allocation_id"], found["label"], found["job_id"]) == ("1.a.0", "array-1.a.0_4", "71_4")
    assert found["files"] == "array-1.a.0.t0k3n_4"


def test_a_task_of_an_earlier_version_is_read_as_its_jobs_account(tmp_path: Path) -> None:
    """Its files are in the folder where all could write, and its record says neither their name nor its account."""
    asked: list[tuple[str, int | None]] = []

    class Shared(Cluster):
        def job(self, job_id: str) -> SlurmJob | None:
            return SlurmJob(job_id, "COMPLETED", name="detlab-1.a.0", comment="c", uid=1002) if job_id == "71" else None

        def read(self, path: PurePath, whose: Whose) -> str:
            asked.append((str(path), whose.uid))
            return "said"

    cluster = Shared()
    watch = JobWatch(cluster, "c", 1.0, every_users=True)
    record = tmp_path / "1.a.0.json"
    for job_id, told in (("71", "said"), ("72", "")):
        fields = SlurmTask.noted(record, {"run": 1, "slots": [], "job_id": job_id})
        task = SlurmTask(**fields, client=cluster, watch=watch, directory=SHARED)
        assert task._read(".exit") == told, "what nobody knows the account of is not read"
    assert asked == [("/shared/1.a.0.exit", 1002)]


def program(folder: Path, name: str, says: str = "") -> None:
    path = folder / name
    path.write_text(f'#!/bin/sh\necho {name} "$@" >> {folder}/asked\nprintf "%s" "{says}"\n')
    path.chmod(0o755)


def test_one_of_an_array_is_cancelled_without_a_filter(tmp_path: Path) -> None:
    """With `--name`, scancel cancels all of an array that wait: Slurm keeps them as one job."""
    client = Commands(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    program(tmp_path, "scancel")
    program(tmp_path, "squeue", "detlab-array-1.a.0")
    client.cancel("71_4", "detlab-array-1.a.0", at_once=True)
    client.cancel("71_4", "detlab-array-1.b.0")
    client.cancel("72", "detlab-1.a.0")
    asked = [line for line in (tmp_path / "asked").read_text().splitlines() if line.startswith("scancel")]
    assert asked == [
        "scancel --name=detlab-array-1.a.0 --state=RUNNING --signal=KILL --full 71_4",
        "scancel 71_4",
        "scancel --name=detlab-1.a.0 72",
    ], "a number that is given out a second time is not cancelled, nor is a signal sent to what waits"


def test_slurm_says_otherwise_that_it_does_not_know_one_of_an_array(tmp_path: Path) -> None:
    client = Commands(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    program(tmp_path, "scontrol", "Job 71_4 not found")
    program(tmp_path, "sacct")
    assert client.end_of("71_4", "detlab-array-1.a.0") is None


def test_the_largest_array_is_what_the_cluster_says(tmp_path: Path) -> None:
    client = Commands(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"})
    program(tmp_path, "scontrol", "MailProg = /bin/mail\nMaxArraySize            = 1001\nMaxJobCount = 10000\n")
    assert client.largest_array() == 1001


async def test_the_files_of_a_stranger_are_removed_when_it_has_ended_and_not_before(tmp_path: Path) -> None:
    removed: list[str] = []

    class Shared(Cluster):
        def cancel(self, job_id: str, name: str, *, at_once: bool = False) -> None:
            self.there = [replace(job, state="COMPLETING") for job in self.there]

        def remove(self, paths: Sequence[PurePath]) -> None:
            removed.extend(path.name for path in paths)

    cluster = Shared(there=[SlurmJob("71_1", "RUNNING", name="detlab-array-1.a.0", comment="c")])
    watch = JobWatch(cluster, "c", 0.05)
    watch.forget("array-1.a.0_1", files_of(SHARED, "array-1.a.0.t0k3n_1"))
    looks = asyncio.create_task(watch.run())
    try:
        for _ in range(2):
            await asyncio.wait_for(watch.next_look(fresh=True), 20)
        assert not removed
        cluster.there = []
        await asyncio.wait_for(watch.next_look(fresh=True), 20)
        assert "array-1.a.0.t0k3n_1.begun" in removed
    finally:
        looks.cancel()


async def test_the_name_that_a_user_gives_a_job_removes_no_file(place: Place) -> None:
    """Its files had been removed by its name: as root, `detlab-../../home/ada/x` took /home/ada/x.out."""
    removed: list[PurePath] = []
    cancelled: list[str] = []
    place.cluster.remove = removed.extend  # type: ignore[method-assign]

    def cancel(job_id: str, name: str, *, at_once: bool = False) -> None:
        cancelled.append(job_id)
        place.cluster.there = []

    place.cluster.cancel = cancel  # type: ignore[method-assign]
    there = SlurmJob("71", "RUNNING", name="detlab-../../home/ada/x", comment="detlab agent a", uid=1002)
    place.cluster.there = [there]
    looks = asyncio.create_task(place.watch.run())
    try:
        for _ in range(3):
            await asyncio.wait_for(place.watch.next_look(fresh=True), 20)
    finally:
        looks.cancel()
    assert cancelled == ["71"]
    assert not removed


async def test_a_job_of_another_account_with_a_tasks_name_is_not_its_job(place: Place) -> None:
    place.watch.know("1.a.0", None, 1001)
    theirs = SlurmJob("70", "RUNNING", name="detlab-1.a.0", comment="detlab agent a", uid=1002)
    mine = replace(theirs, id="71", uid=1001)
    place.cluster.there = [theirs, mine]
    place.cluster.cancel = lambda *_, **__: pytest.fail("the second one is nobody's double")  # type: ignore[method-assign]
    looks = asyncio.create_task(place.watch.run())
    try:
        await asyncio.wait_for(place.watch.next_look(fresh=True), 20)
    finally:
        looks.cancel()
    assert place.watch.of("1.a.0") == [mine]


async def test_thousands_of_jobs_that_look_like_former_tasks_keep_no_task_waiting(place: Place) -> None:
    """Each was ended before the next look at all jobs: one user's array kept everybody's tasks waiting for minutes."""
    ended: list[tuple[str, int | None]] = []

    def job(number: int, uid: int) -> SlurmJob:
        return SlurmJob(str(number), "PENDING", name=f"detlab-former.{number}", comment="detlab agent a", uid=uid)

    def cancel(job_id: str, name: str, *, at_once: bool = False) -> None:
        ended.append((job_id, next(one.uid for one in place.cluster.there if one.id == job_id)))

    place.cluster.cancel = cancel  # type: ignore[method-assign]
    place.cluster.there = [*(job(number, 1002) for number in range(500)), job(900, 1001)]
    looks = asyncio.create_task(place.watch.run())
    try:
        await asyncio.wait_for(place.watch.next_look(), 20)
        assert len(ended) <= MOST_ENDED
        assert ("900", 1001) in ended, "another user's former task has its turn"
        place.cluster.there = place.cluster.there[-3:]
        await asyncio.wait_for(place.watch.next_look(fresh=True), 20)
    finally:
        looks.cancel()
    assert {"498", "499"} <= {number for number, _ in ended}, "the others come with later looks"


@pytest.mark.parametrize("word", ["x", "-1", "", "\u0664", "9" * 5000])
def test_a_jobs_comment_says_nothing_of_its_end_that_cannot_be_read(tmp_path: Path, word: str) -> None:
    program(
        tmp_path, "scontrol", f"JobId=7 JobName=detlab-1.a.0 JobState=FAILED ExitCode=1:0 Comment=a Restarts={word} x"
    )
    end = Commands(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}).end_of("7", "detlab-1.a.0")
    assert end is not None
    assert (end.state, end.status, end.restarts) == ("FAILED", 1, 0)


def test_lines_in_a_jobs_comment_are_no_jobs(tmp_path: Path) -> None:
    """squeue prints a comment as it is, with its line feeds: one user could list jobs of others."""
    forged = "78|1001|COMPLETED|None|||n0|1|detlab-1.a.0|detlab agent a"
    path = tmp_path / "squeue"
    path.write_text(
        "#!/bin/sh\nfor word; do case $word in --format=*) mark=${word#--format=}; mark=${mark%%|*} ;; esac; done\n"
        f'printf "%s|77|1002|RUNNING|None|||n0|1|x|y\\n{forged}\\n%s%s\\n" "$mark" "" "{forged}"\n'
    )
    path.chmod(0o755)
    client = Commands(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}, everyone=True)
    assert [(job.id, job.uid) for job in client.jobs()] == [("77", 1002)]


def test_a_job_that_was_over_before_it_was_cancelled_is_no_refusal(tmp_path: Path) -> None:
    """`scancel` said nothing and left the lower byte of "already done" as its status."""
    scancel = tmp_path / "scancel"
    scancel.write_text("#!/bin/sh\nexit 229\n")
    scancel.chmod(0o755)
    Commands(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}).cancel("71", "detlab-1.a.0", at_once=True)


async def test_the_files_that_a_requeued_job_writes_after_its_task_was_removed_go_with_it(tmp_path: Path) -> None:
    """It had just started again when it was cancelled, and wrote its report after the task's files were removed."""
    removed: list[list[str]] = []

    class Shared(Cluster):
        def cancel(self, job_id: str, name: str, *, at_once: bool = False) -> None:
            self.there = []

        def remove(self, paths: Sequence[PurePath]) -> None:
            removed.append([path.name for path in paths])

    cluster = Shared(there=[SlurmJob("71", "PENDING", name="detlab-1.a.0", comment="c")])
    watch = JobWatch(cluster, "c", 0.05)
    watch.know("1.a.0", "71")
    record = tmp_path / "1.a.0.json"
    task = SlurmTask("1.a.0", 1, (), record, client=cluster, watch=watch, directory=SHARED, job_id="71")
    looks = asyncio.create_task(watch.run())
    try:
        await asyncio.wait_for(watch.next_look(fresh=True), 20)
        await task.remove(clean=True)
        for _ in range(2):
            await asyncio.wait_for(watch.next_look(fresh=True), 20)
    finally:
        looks.cancel()
    assert removed == [removed[0]] * 2, "once more, when Slurm knows the job no more"
    assert "1.a.0.exit" in removed[0]


async def test_a_task_that_is_killed_while_slurm_is_away_does_not_start_when_it_is_back(tmp_path: Path) -> None:
    cluster = Cluster(answers=[SlurmAway("connection refused")])
    watch = JobWatch(cluster, "c", 0.05)
    task = SlurmTask(
        "1.a.0", 1, (), tmp_path / "1.a.0.json", client=cluster, watch=watch, directory=SHARED,
        request=request(tmp_path),
    )  # fmt: skip
    looks = asyncio.create_task(watch.run())
    try:
        begun = asyncio.create_task(task.begun(lambda stage, message: task.interrupt(0.0)))
        await asyncio.wait_for(begun, 20)
        assert (await task.finished()).message == "ended before it started"
    finally:
        looks.cancel()
    assert len(cluster.arrays) == 1, "it is not submitted a second time"


async def test_a_job_that_comes_to_light_after_its_task_was_killed_is_ended(tmp_path: Path) -> None:
    cancelled: list[tuple[str, bool]] = []

    class Lost(Cluster):
        def submit(self, arguments: Sequence[str], script: str, whose: Whose) -> str:
            self.there = [SlurmJob("7", "PENDING", name="detlab-1.a.0", comment="c")]
            raise SlurmAway("the answer got lost")

        def cancel(self, job_id: str, name: str, *, at_once: bool = False) -> None:
            cancelled.append((job_id, at_once))
            self.there = []

        def end_of(self, job_id: str, name: str) -> JobEnd:
            return JobEnd("CANCELLED", 143)

        def read(self, path: PurePath, whose: Whose) -> str:
            return ""

    cluster = Lost()
    watch = JobWatch(cluster, "c", 0.05)
    task = SlurmTask(
        "1.a.0", 1, (), tmp_path / "1.a.0.json", client=cluster, watch=watch, directory=SHARED,
        request=request(tmp_path),
    )  # fmt: skip
    watch.know(task.label, None)
    killed: list[asyncio.Task[None]] = []

    def told(stage: str, message: str) -> None:
        task.interrupt(0.0)
        killed.append(asyncio.create_task(task.kill(1.0)))

    looks = asyncio.create_task(watch.run())
    try:
        await asyncio.wait_for(task.begun(told), 20)
        assert (await asyncio.wait_for(task.finished(), 20)).message == "Slurm job 7 was killed"
    finally:
        looks.cancel()
    assert cancelled == [("7", False), ("7", True)]
