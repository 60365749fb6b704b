"""Runs that no cluster started: real scripts and commands, a real master, from the first value to the last sync."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from detlab_hub.core.tracking.writers import SILENT_SECONDS, run_ids_of_key
from detlab_hub.services.tracking.reports import RunReports

PYTHON, DET = sys.executable, os.fspath(Path(sys.executable).with_name("det"))


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """One database: what of it differs between two is in the tests of the store."""
    return sqlite_url


@dataclass
class Place:
    """A folder on somebody's laptop, and the master that may be reached from there."""

    door: Any
    folder: Path
    user: str = "alice"
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self, **more: str) -> dict[str, str]:
        said = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "DET_URL": self.door.base,
            "DET_TOKEN": f"user:{self.user}",
            "DET_RUN_FINISH_SECONDS": "20",
            **self.variables,
            **more,
        }
        return {name: value for name, value in said.items() if value}

    async def start(self, *words: str, **more: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *words, cwd=self.folder, env=self.environment(**more), stdin=pipe, stdout=pipe, stderr=pipe
        )

    async def run(self, *words: str, code: int = 0, **more: str) -> str:
        """Run a program to its end; return what it has printed."""
        process = await self.start(*words, **more)
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == code, err.decode() + out.decode()
        return out.decode() + err.decode()

    async def script(self, text: str, *words: str, code: int = 0, **more: str) -> str:
        """Run a script of Python."""
        (self.folder / "train.py").write_text(f"import detlab as det\n{text}\n")
        return await self.run(PYTHON, "train.py", *words, code=code, **more)

    def http(self, user: str = "") -> httpx.AsyncClient:
        """A client of the API, as a user."""
        headers = {"Authorization": f"Bearer user:{user or self.user}"}
        http = httpx.AsyncClient(base_url=f"{self.door.base}api/v1/", headers=headers, trust_env=False, timeout=30)
        self.door.made.append(http)
        return http

    async def get(self, path: str, user: str = "", **params: Any) -> Any:
        reply = await self.http(user).get(path, params=params)
        assert reply.status_code == 200, reply.text
        return reply.json()


@pytest.fixture
def place(door: Any, tmp_path: Path) -> Place:
    folder = tmp_path / "laptop"
    folder.mkdir()
    return Place(door, folder)


async def until(look: Any, seconds: float = 30.0) -> Any:
    """Return what a coroutine function returns once that is true."""
    for _ in range(int(seconds * 10)):
        if found := await look():
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"not so within {seconds} s")


TRAINING = """
run = det.init(project="digits", config={"lr": 0.1, "net": {"depth": 2}}, id="baseline", group="g", job_type="train",
               name="first", tags={"stage": "test"}, notes="a note")
for step in range(50):
    det.log({"loss": 1 / (step + 1), "val": {"acc": step / 50}})
print("trained")
det.log({"odd": float("nan"), "huge": float("inf")}, step=7)
det.log({"loss": 0.5}, step=3)
run.summary["best"] = 0.98
det.finish()
"""


async def test_a_script_far_from_the_cluster_is_a_run_there(place: Place) -> None:
    said = await place.script(TRAINING)
    assert "the master has all of it" in said
    run = await place.get("runs/baseline")
    assert (run["status"], run["name"], run["project"], run["owner"]) == ("FINISHED", "first", "digits", "alice")
    assert (run["group"], run["job_type"], run["notes"]) == ("g", "train", "a note")
    assert run["config"] == {"lr": "0.1", "net.depth": "2"}
    assert run["metrics"]["loss"]["step"] == 49
    assert (run["metrics"]["odd"]["value"], run["metrics"]["huge"]["value"]) == ("NaN", "Infinity")
    assert run["summary"] == {"best": 0.98}
    assert run["tags"]["stage"] == "test"
    assert run["tags"]["mlflow.source.name"].endswith("train.py")
    points = await place.get("runs/baseline/metrics", name="loss")
    assert points["steps"] == sorted([*range(50), 3])
    lines = [one["text"] for one in (await place.get("runs/baseline/logs"))["items"]]
    assert "trained" in lines
    listed = await place.get("runs", project="digits", group="g", status="FINISHED")
    assert [one["id"] for one in listed["items"]] == [run["id"]]
    assert (await place.get("runs", project="digits", group="other"))["items"] == []
    assert [one["id"] for one in (await place.get("runs"))["items"]] == [run["id"]]


async def test_it_is_a_run_to_clients_of_mlflow_too_with_its_files(place: Place) -> None:
    await place.script(TRAINING)
    run = (await place.get("runs/baseline"))["id"]
    alice = place.door.of("alice")
    _, reply = await alice("GET", "runs/get", run_id=run)
    data = reply["run"]["data"]
    assert {one["key"] for one in data["metrics"]} == {"loss", "val.acc", "odd", "huge"}
    assert {"key": "lr", "value": "0.1"} in data["params"]
    _, reply = await alice("GET", "artifacts/list", run_id=run)
    assert [one["path"] for one in reply["files"]] == ["code", "requirements.txt"]
    _, reply = await alice("GET", "artifacts/list", run_id=run, path="code")
    assert [one["path"] for one in reply["files"]] == ["code/train.py"]


async def test_an_offline_week_is_sent_later_by_a_command_and_again_without_doubles(place: Place) -> None:
    said = await place.script(TRAINING, DET_URL="", DET_TOKEN="")
    assert "Log in: det login URL. Send them: det sync" in said
    reply = await place.http().get("runs/baseline")
    assert reply.status_code == 404
    # The token has expired meanwhile.
    said = await place.run(DET, "sync", code=1, DET_TOKEN=f"dtrun_{'x' * 40}")
    assert "det login" in said
    first = json.loads(await place.run(DET, "sync", "--json"))
    again = json.loads(await place.run(DET, "sync", "detlab-runs/baseline", "--json"))
    assert first[0]["sent"] > 50
    assert (again[0]["sent"], again[0]["run"]) == (0, first[0]["run"])
    points = await place.get("runs/baseline/metrics", name="loss")
    assert len(points["steps"]) == 51
    assert (await place.get("runs/baseline"))["status"] == "FINISHED"
    lines = [one["text"] for one in (await place.get("runs/baseline/logs"))["items"]]
    assert lines.count("trained") == 1


async def test_a_script_that_is_killed_says_so_at_once(place: Place) -> None:
    (place.folder / "train.py").write_text(
        "import detlab as det, time\ndet.init(id='killed')\ndet.log({'a': 1})\n"
        "print('ready', flush=True)\ntime.sleep(99)"
    )
    script = await place.start(PYTHON, "train.py")
    assert script.stdout is not None
    assert await script.stdout.readline() == b"ready\n"

    async def there() -> bool:
        reply = await place.http().get("runs/killed")
        return reply.status_code == 200 and "a" in reply.json()["metrics"]

    await until(there)
    assert (await place.get("runs/killed"))["status"] == "RUNNING"
    os.kill(script.pid, signal.SIGKILL)
    await script.communicate()

    async def failed() -> Any:
        found = await place.get("runs/killed")
        return found if found["status"] == "FAILED" else None

    found = await until(failed)
    assert "killed, or ran out of memory" in found["end_reason"]


@pytest.mark.parametrize(
    ("end", "code", "status", "reason"),
    [
        ("raise ValueError('bad data')", 1, "FAILED", "ValueError: bad data"),
        ("import sys; sys.exit(3)", 3, "FAILED", "exit code 3"),
        ("raise KeyboardInterrupt", 130, "KILLED", "KeyboardInterrupt: "),
        ("pass", 0, "FINISHED", ""),
    ],
)
async def test_a_script_ends_its_run_as_it_ends(place: Place, end: str, code: int, status: str, reason: str) -> None:
    await place.script(f"det.init(id='ended', code=False)\ndet.log({{'a': 1}})\n{end}", code=code if code < 128 else -2)
    found = await place.get("runs/ended")
    assert (found["status"], found["end_reason"]) == (status, reason)


async def test_a_run_goes_on_by_its_id_and_its_steps_do(place: Place) -> None:
    await place.script(
        "det.init(id='long', code=False)\n[det.log({'a': i}) for i in range(5)]\nraise SystemExit(1)", code=1
    )
    more = "det.init(id='long', resume=True, code=False)\n[det.log({'a': i}) for i in range(5)]"
    await place.script(more)
    found = await place.get("runs/long")
    assert found["status"] == "FINISHED"
    assert (await place.get("runs/long/metrics", name="a"))["steps"] == list(range(10))
    # From another machine, where nothing of it is on disk, the master says how far it is.
    await place.script(more, DET_RUNS_DIR=str(place.folder / "other"))
    assert (await place.get("runs/long/metrics", name="a"))["steps"] == list(range(15))


async def test_two_processes_of_one_run_keep_all_of_both(place: Place) -> None:
    # As ranks do, they wait for each other before they train: one that begins after the other has ended is another run.
    (place.folder / "rank.py").write_text(
        "import detlab as det, pathlib, sys, time\nrank = sys.argv[1]\ndet.init(id='ranks', code=False)\n"
        "pathlib.Path(f'begun{rank}').touch()\n"
        "while not pathlib.Path(f'begun{1 - int(rank)}').exists():\n    time.sleep(0.02)\n"
        "for step in range(300):\n    det.log({f'rank{rank}/loss': step})\n"
    )
    ranks = [await place.start(PYTHON, "rank.py", str(rank)) for rank in range(2)]
    for rank in ranks:
        _, err = await asyncio.wait_for(rank.communicate(), 60)
        assert rank.returncode == 0, err
    found = await place.get("runs/ranks")
    assert found["status"] == "FINISHED"
    for rank in range(2):
        assert len((await place.get("runs/ranks/metrics", name=f"rank{rank}/loss"))["steps"]) == 300


async def test_a_command_is_wrapped_as_it_is_and_what_it_logs_is_in_the_same_run(place: Place) -> None:
    (place.folder / "train.py").write_text(
        "import detlab as det, sys\nprint('training', sys.argv[1:])\nprint('warned', file=sys.stderr)\n"
        "det.init()\ndet.log({'loss': 0.5})\nsys.exit(4)\n"
    )
    said = await place.run(
        *(DET, "track", "--project", "digits", "--id", "wrapped", "--tag", "a=b"),
        *("--", PYTHON, "train.py", "--epochs", "3"),
        code=4,
    )
    assert "training ['--epochs', '3']" in said
    found = await place.get("runs/wrapped")
    assert (found["status"], found["end_reason"], found["project"]) == ("FAILED", "exit code 4", "digits")
    assert found["metrics"]["loss"]["value"] == 0.5
    assert found["tags"]["a"] == "b"
    lines = [one["text"] for one in (await place.get("runs/wrapped/logs"))["items"]]
    assert lines.count("training ['--epochs', '3']") == 1
    assert "warned" in lines


async def test_a_command_that_is_not_there_is_said_to_be_and_its_run_failed(place: Place) -> None:
    said = await place.run(DET, "track", "--id", "none", "--", "no-such-program", code=1)
    assert "no-such-program cannot be started" in said
    assert (await place.get("runs/none"))["status"] == "FAILED"


async def test_runs_are_listed_shown_and_deleted_by_commands(place: Place) -> None:
    await place.run(DET, "alert", "add-rule", "completed")
    await place.script(TRAINING)
    run = (await place.get("runs/baseline"))["id"]
    assert [one["id"] for one in json.loads(await place.run(DET, "run", "list", "--json"))] == [run]
    for words in (("run", "list"), ("alert", "list")):
        assert run in await place.run(DET, *words, COLUMNS="80"), "lists name it alike, to be pasted"
    assert "loss=0.02" in await place.run(DET, "run", "list", "--project", "digits", COLUMNS="200")
    shown = await place.run(DET, "run", "describe", "baseline")
    for text in ("FINISHED", "net.depth", "alice/Uncategorized/digits", "0.98"):
        assert text in shown
    assert "there are loss, " in await place.run(DET, "run", "metrics", "baseline", "los", code=1)
    assert "trained" in await place.run(DET, "run", "logs", "baseline", "--tail", "5")
    table = await place.run(DET, "run", "metrics", "baseline", "loss", "--csv")
    assert len(table.splitlines()) == 52
    await place.run(DET, "run", "delete", run, "--yes")
    assert json.loads(await place.run(DET, "run", "list", "--json")) == []
    said = await place.run(DET, "sync", code=1)
    assert "is deleted" in said
    assert [one["id"] for one in json.loads(await place.run(DET, "run", "list", "--deleted", "--json"))] == [run]
    assert "Restored" in await place.run(DET, "run", "undelete", "baseline")
    assert "for good" in await place.run(DET, "run", "delete", run, "--forever", "--yes")
    assert json.loads(await place.run(DET, "run", "list", "--deleted", "--json")) == []


async def test_a_run_is_listed_by_what_its_script_prints_and_named_by_how_that_begins(place: Place) -> None:
    for key in ("baseline", "baseball"):
        await place.http().post("runs", json={"key": key, "writer": "a", "project": "digits"})
    listed = await place.get("runs", project="digits")
    assert {one["name"] for one in listed["items"]} == {"baseline", "baseball"}, "what it was named by is its name"
    assert {one["key"] for one in listed["items"]} == {"baseline", "baseball"}
    table = await place.run(DET, "run", "list", COLUMNS="200")
    assert "baseline" in table
    whole = (await place.get("runs/baseline"))["id"]
    assert (await place.get("runs/basel"))["id"] == whole
    assert (await place.get(f"runs/{whole[:10]}"))["id"] == whole
    for start, status, words in (
        ("base", 400, "several of your runs begin with base"),
        ("bas", 404, "det run list"),
        ("b%line", 404, "there is no run"),
    ):
        reply = await place.http().get(f"runs/{start}")
        assert (reply.status_code, words in reply.text) == (status, True), reply.text
    theirs = await place.http("mallory").get("runs/basel")
    assert theirs.status_code == 404
    drawn = "0123456789abcdef" * 2
    await place.http().post("runs", json={"key": drawn, "writer": "a", "project": "digits"})
    called = await place.get("runs/run-01234567")
    assert (called["name"], called["key"]) == ("run-01234567", drawn), (
        "a run without a name is called as its script is told"
    )
    assert called["id"][:8] == drawn[:8], "to others it has the digits that its script prints"


async def test_a_run_from_before_ids_began_as_keys_do_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = "0123456789abcdef" * 2
    old = run_ids_of_key("alice", drawn)[-1]
    with monkeypatch.context() as before:
        before.setattr("detlab_hub.services.tracking.reports.run_id_of_key", lambda owner, key: old)
        await place.http().post("runs", json={"key": drawn, "writer": "a", "project": "digits"})
    again = await place.http().post("runs", json={"key": drawn, "writer": "b", "project": "digits"})
    assert again.json()["run"]["id"] == old, again.text
    assert (await place.get(f"runs/{drawn}"))["key"] == drawn
    assert len((await place.get("runs"))["items"]) == 1


# --- who may do what


async def test_anothers_run_is_answered_as_one_that_is_not_there(place: Place) -> None:
    await place.script(TRAINING)
    theirs = (await place.get("runs/baseline"))["id"]
    mallory = place.http("mallory")
    nobodys = "e" * 32

    async def asked(run_id: str) -> list[tuple[int, str]]:
        found = []
        for verb, path, body in (
            ("GET", f"runs/{run_id}", None),
            ("GET", f"runs/{run_id}/metrics?name=loss", None),
            ("GET", f"runs/{run_id}/logs", None),
            ("DELETE", f"runs/{run_id}", None),
            ("DELETE", f"runs/{run_id}?forever=true", None),
            ("POST", f"runs/{run_id}/restore", None),
            ("POST", f"runs/{run_id}/writers/a/records", {"records": []}),
        ):
            reply = await mallory.request(verb, path, json=body)
            found.append((reply.status_code, reply.text.replace(run_id, "ID")))
        return found

    assert await asked(theirs) == await asked(nobodys)
    assert {status for status, _ in await asked(theirs)} == {404}
    assert (await mallory.get("runs/baseline")).status_code == 404
    # Its id as a key makes a run of their own, as any key does.
    made = [(await mallory.post("runs", json={"key": key, "writer": "a"})).json() for key in (theirs, nobodys)]
    for one in made:
        assert one["acked"] == 0
        assert one["run"]["id"] not in {theirs, nobodys}
        assert (one["run"]["owner"], one["run"]["metrics"]) == ("mallory", {})
    assert (await place.get("runs/baseline"))["metrics"]["loss"]["step"] == 49


async def test_members_of_a_workspace_do_what_their_roles_let_them(place: Place) -> None:
    await place.door.world.workspace("lab", "digits", bob="editor", vic="viewer")
    await place.script("det.init(project='lab/digits', id='shared', code=False)\ndet.log({'a': 1})")
    run = (await place.get("runs/shared"))["id"]
    bob, vic = place.http("bob"), place.http("vic")
    for reader in (bob, vic):
        assert (await reader.get(f"runs/{run}")).json()["metrics"]["a"]["value"] == 1.0
        listed = (await reader.get("runs", params={"project": "alice/lab/digits"})).json()
        assert [one["id"] for one in listed["items"]] == [run]
    # An editor goes on with it; a viewer may not, and is told so, since they may know of it.
    begun = await bob.post("runs", json={"key": run, "writer": "bobs"})
    assert (begun.status_code, begun.json()["run"]["id"]) == (200, run)
    assert (await vic.post("runs", json={"key": run, "writer": "vics"})).status_code == 403
    assert (await vic.post(f"runs/{run}/writers/bobs/records", json={"records": []})).status_code == 403
    assert (await vic.post("runs", json={"key": "new", "project": "alice/lab/digits"})).status_code == 403
    assert (await bob.delete(f"runs/{run}")).status_code == 403
    assert (await place.http("mallory").get("runs", params={"project": "alice/lab/digits"})).status_code == 404


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"key": "../up"}, 422),
        ({"key": ""}, 422),
        ({"key": "a", "writer": "A b"}, 422),
        ({"key": "a", "owner": "root"}, 422),
        ({"key": "a", "started": "NaN"}, 422),
        ({"key": f"{17:032x}"}, 400),
        ({"key": "a", "project": "no/such/place"}, 404),
        ({"key": "a", "project": "17"}, 422),
    ],
)
async def test_what_can_be_no_run_is_refused(place: Place, body: Mapping[str, Any], status: int) -> None:
    reply = await place.http().post("runs", json=body)
    assert reply.status_code == status, reply.text


# --- records as they come


def record(seq: int, kind: str = "metrics", **more: Any) -> dict[str, Any]:
    return {"kind": kind, "seq": seq, "time": 100.0 + seq, **more}


@pytest.fixture
async def writer(place: Place) -> Any:
    """A run with a process: `send(*records)` -> the answer."""
    http = place.http()
    run = (await http.post("runs", json={"key": "r", "writer": "w", "started": 90.0})).json()["run"]["id"]

    async def send(*records: dict[str, Any]) -> Any:
        reply = await http.post(f"runs/{run}/writers/w/records", json={"records": list(records)})
        return reply.json() if reply.status_code == 200 else (reply.status_code, reply.json()["message"])

    return send


async def test_records_are_stored_once_whatever_is_sent_again(place: Place, writer: Any) -> None:
    await writer(record(1, step=0, values={"a": 1.0}), record(2, step=1, values={"a": 2.0}))
    acked = await writer(
        record(1, step=5, values={"a": 9.0}), record(2, step=6, values={"a": 9.0}), record(3, step=2, values={"a": 3.0})
    )
    assert (acked["acked"], acked["refused"]) == (3, [])
    assert (await place.get("runs/r/metrics", name="a"))["values"] == [1.0, 2.0, 3.0]
    begun = (await place.http().post("runs", json={"key": "r", "writer": "w"})).json()
    assert begun["acked"] == 3


async def test_what_cannot_be_stored_is_refused_by_its_number_and_the_rest_is_there(place: Place, writer: Any) -> None:
    acked = await writer(
        record(1, step=0, values={"a": 1.0}),
        record(2, step=0, values={"../a": 1.0}),
        record(3, step=0, values={"a": "one"}),
        record(4, step=2**60, values={"a": 1.0}),
        record(5, "summary", values={"s": "x" * 10_000}),
        {**record(6, step=1, values={"a": 1.0}), "time": -5.0},
        record(7, step=-3, values={"a": "-Infinity"}),
        record(8, "config", values={"deep": {"er": [1, {"x": None}]}}),
    )
    assert acked["acked"] == 8
    assert [one["seq"] for one in acked["refused"]] == [2, 3, 4, 5, 6]
    assert (await place.get("runs/r/metrics", name="a"))["values"] == ["-Infinity", 1.0]
    assert (await place.get("runs/r"))["config"] == {"deep.er": '[1, {"x": null}]'}


async def test_a_run_has_so_many_metrics_and_parameters_at_most(place: Place, writer: Any) -> None:
    status, message = await writer(record(1, step=0, values={f"m{n}": 1.0 for n in range(10_001)}))
    assert (status, "10,000 metrics" in message) == (400, True)
    status, message = await writer(record(1, "config", values={f"p{n}": "x" for n in range(5_001)}))
    assert (status, "5,000" in message) == (400, True)
    assert (await writer(record(1, step=0, values={"a": 1.0})))["acked"] == 1


async def test_a_process_that_has_not_begun_is_told_so(place: Place, writer: Any) -> None:
    run = (await place.get("runs/r"))["id"]
    reply = await place.http().post(f"runs/{run}/writers/other/records", json={"records": []})
    assert reply.status_code == 409


async def test_a_run_that_is_not_heard_from_is_lost_and_runs_again_when_it_is(place: Place, writer: Any) -> None:
    world = place.door.world
    await writer(record(1, "begin"), record(2, step=0, values={"a": 1.0}))
    reports = world.services[RunReports]
    world.now += SILENT_SECONDS - 1
    assert await reports.sweep() == 0
    world.now += 2
    assert await reports.sweep() == 1
    assert await reports.sweep() == 0
    lost = await place.get("runs/r")
    assert (lost["status"], "not heard from" in lost["end_reason"]) == ("FAILED", True)
    await writer()  # a heartbeat
    found = await place.get("runs/r")
    assert (found["status"], found["end_reason"], found["ended_at"]) == ("RUNNING", "", None)
    await writer(record(3, "exit", status="FINISHED"), record(4, step=1, values={"a": 2.0}))
    world.now += SILENT_SECONDS * 3
    assert await reports.sweep() == 0
    found = await place.get("runs/r")
    assert (found["status"], found["metrics"]["a"]["value"]) == ("FINISHED", 2.0)


async def test_the_time_that_the_master_was_away_is_nobodys_silence(place: Place, writer: Any) -> None:
    world = place.door.world
    await writer(record(1, "begin"))
    world.now += 3600
    world.services.context.started_at = world.now
    assert await world.services[RunReports].sweep() == 0
    world.now += SILENT_SECONDS + 1
    assert await world.services[RunReports].sweep() == 1


async def test_only_people_begin_runs(place: Place) -> None:
    trial = await place.door.trial("alice")
    http = place.door.of(trial.token).http
    reply = await http.post("api/v1/runs", json={"key": "mine"})
    assert reply.status_code == 403


async def test_a_page_of_a_run_has_its_curves_files_and_news_and_nobody_else_has(place: Place) -> None:
    await place.script(TRAINING)
    run = await place.get("runs/baseline")
    assert run["may"] == "own"
    base = f"runs/{run['id']}"
    curves = (await place.get(f"{base}/curves", name=["loss", "odd"], max_points=20))["items"]
    assert [(one["name"], one["total"]) for one in curves] == [("loss", 51), ("odd", 1)]
    assert len(curves[0]["steps"]) <= 21
    assert curves[0]["steps"][0] == 0
    assert max(curves[0]["values"]) == 1.0
    assert curves[1]["values"] == ["NaN"]
    files = (await place.get(f"{base}/files"))["items"]
    assert [one["path"] for one in files] == ["code/train.py", "requirements.txt"]
    reply = await place.http().get(f"{base}/file", params={"path": "code/train.py"})
    assert b"det.finish()" in reply.content
    assert "sandbox" in reply.headers["Content-Security-Policy"]
    assert reply.headers["Content-Disposition"].startswith("attachment")
    assert (await place.http().get(f"{base}/file", params={"path": "../x"})).status_code == 404
    lines = [line for line in (await place.http().get(f"{base}/logs/stream")).text.splitlines() if line]
    assert "trained" in {json.loads(line)["text"] for line in lines}
    beats = [json.loads(line) for line in (await place.http().get(f"{base}/stream")).text.splitlines() if line]
    assert [one["status"] for one in beats] == ["FINISHED"], "it has ended, and so does the stream"
    paths = (
        "",
        "/curves",
        "/files",
        "/file?path=code/train.py",
        "/logs",
        "/logs/stream",
        "/stream",
        "/metrics?name=loss",
    )
    for path in paths:
        other = await place.http("mallory").get(f"{base}{path}")
        absent = await place.http("mallory").get(f"runs/{'f' * 32}{path}")
        assert (other.status_code, absent.status_code) == (404, 404), path
        assert other.json()["code"] == absent.json()["code"]


async def test_who_looks_at_a_run_hears_when_it_logs(place: Place) -> None:
    process = await place.start(
        PYTHON,
        "-c",
        "import detlab as det, time, sys\ndet.init(id='live')\ndet.log({'a': 1.0})\nsys.stdin.readline()\n"
        "det.log({'a': 2.0})\ndet.finish()",
    )
    await until(lambda: _begun(place))
    beats = []
    async with place.http().stream("GET", "runs/live/stream") as stream:
        async for line in stream.aiter_lines():
            if line:
                beats.append(json.loads(line)["status"])
            if len(beats) == 1 and process.stdin is not None and not process.stdin.is_closing():
                process.stdin.write(b"\n")
                process.stdin.close()
    assert beats[0] == "RUNNING"
    assert beats[-1] == "FINISHED"
    await asyncio.wait_for(process.wait(), 30)


async def _begun(place: Place) -> bool:
    reply = await place.http().get("runs/live")
    return reply.status_code == 200 and "a" in reply.json()["metrics"]


MEDIA = """
run = det.init(id="seen", project="digits")
for step in (1, 2):
    first = det.Image([[0, step], [9, 9]], caption=f"digit {step}")
    det.log({"samples": [first, det.Image([[1]])], "loss": 1.0}, step=step)
det.log({"page": det.Html("<script>alert(1)</script>"), "bad": object()}, step=2)
det.finish()
"""


async def test_images_of_a_run_reach_the_master_live_and_by_sync_and_nobody_else(place: Place) -> None:
    said = await place.script(MEDIA)
    assert "the master has all of it" in said
    run = await place.get("runs/seen")
    base = f"runs/{run['id']}/media"
    items = (await place.get(base))["items"]
    assert [(one["key"], one["step"], one["place"]) for one in items] == [
        ("samples", 1, 0),
        ("samples", 1, 1),
        ("samples", 2, 0),
        ("samples", 2, 1),
        ("page", 2, 0),
    ]
    assert {one["run_id"] for one in items} == {run["id"]}
    assert {one["trial_id"] for one in items} == {0}
    assert (await place.get(f"{base}/steps"))["items"] == [1, 2]
    assert [one["key"] for one in (await place.get(f"{base}/keys"))["items"]] == ["page", "samples"]
    page = await place.http().get(f"{base}/{items[4]['id']}/document")
    assert page.headers["Content-Security-Policy"].startswith("sandbox;")
    file = f"{base}/{items[0]['id']}/file"
    assert (await place.http().get(file)).headers["Content-Disposition"].startswith("attachment")
    for path in (base, f"{base}/keys", f"{base}/steps", file, f"{base}/{items[4]['id']}/document"):
        other, absent = [await place.http("mallory").get(one) for one in (path, path.replace(run["id"], "f" * 32))]
        assert (other.status_code, absent.status_code) == (404, 404), path
    facts = {"key": "x", "step": 1, "place": 0, "kind": "text", "media_type": "text/plain"}
    stolen = await place.http("mallory").put(base, params=facts, content=b"x", headers=BYTES)
    assert stolen.status_code == 404
    # By commands, which take any name of the run; its folder is named by the id.
    told = json.loads(await place.run(DET, "run", "media", "list", "seen", "--key", "samples", "--step", "2", "--json"))
    assert [one["id"] for one in told] == [one["id"] for one in items[2:4]]
    assert "samples" in await place.run(DET, "run", "media", "list", "seen", COLUMNS="200")
    assert "2 files in" in await place.run(DET, "run", "media", "download", "seen", "--key", "samples", "--step", "2")
    assert len(list((place.folder / "media" / run["id"]).iterdir())) == 2
    assert "there is no run" in await place.run(DET, "run", "media", "list", "f" * 32, code=1)
    # Another run of the same user never finds them by their numbers, nor by equal bytes.
    await place.script('det.init(id="other"); det.log({"loss": 1.0}); det.finish()')
    assert (await place.http().get(f"runs/other/media/{items[0]['id']}/file")).status_code == 404
    # Offline: on disk, then sent once.
    said = await place.script(MEDIA.replace("seen", "later"), DET_URL="", DET_TOKEN="")
    assert "det sync" in said
    await place.run(DET, "sync")
    await place.run(DET, "sync")
    assert len((await place.get("runs/later/media"))["items"]) == 5


BOARD = """
import time
from testbed.event_files import event, file_of, name, scalar
run = det.init(id="board", tensorboard="import")
now = time.time()
events = [event(scalar("loss", 1 / (step + 1)), scalar("val/acc", step), step=step, at=now) for step in range(5)]
open(name(), "wb").write(file_of(*events, at=now))
det.finish()
"""


async def test_what_a_script_writes_for_tensorboard_is_in_its_run(place: Place) -> None:
    said = await place.script(BOARD, PYTHONPATH=str(Path(__file__).parents[3]))
    assert "the master has all of it" in said
    points = await place.get("runs/board/metrics", name="val/acc")
    assert (points["steps"], points["values"]) == ([0, 1, 2, 3, 4], [0.0, 1.0, 2.0, 3.0, 4.0])
    assert (await place.get("runs/board"))["metrics"]["loss"]["step"] == 4


BYTES = {"Content-Type": "application/octet-stream"}


async def test_media_of_a_run_have_the_limits_of_a_trials(make_door: Any, tmp_path: Path) -> None:
    door = await make_door(media_objects=2)
    folder = tmp_path / "laptop"
    folder.mkdir()
    place = Place(door, folder)
    await place.script('det.init(id="full"); det.log({"loss": 1.0}); det.finish()')
    http, facts = place.http(), {"key": "x", "step": 1, "place": 0, "kind": "text", "media_type": "text/plain"}
    for step, status in ((1, 200), (2, 200), (3, 409)):
        reply = await http.put("runs/full/media", params={**facts, "step": step}, content=b"words", headers=BYTES)
        assert reply.status_code == status, reply.text
    assert reply.json()["code"] == "media.full"
    image = {**facts, "kind": "image", "media_type": "image/png"}
    wrong = await http.put("runs/full/media", params=image, content=b"no", headers=BYTES)
    assert wrong.json()["code"] in {"media.refused", "media.full"}
    assert (await http.delete("runs/full")).status_code == 200
    gone = await http.put("runs/full/media", params=facts, content=b"words", headers=BYTES)
    assert gone.status_code == 409
    assert not [one for one in door.world.settings.media_dir.iterdir() if one.is_file()]
