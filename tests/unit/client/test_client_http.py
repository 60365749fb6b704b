"""Both faces against a real socket: retries, streams through faults, downloads."""

import hashlib
import inspect
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from detlab.client import aresources, resources
from detlab.client.aclient import AsyncClient
from detlab.client.bundle import build_bundle
from detlab.client.calls import Backoff
from detlab.client.client import Client
from detlab.client.discovery import ClusterAddress
from detlab.errors import (
    AuthError,
    CheckpointError,
    ClusterUnreachable,
    ConfigError,
    NotFound,
    StorageError,
    Unavailable,
)
from detlab.schemas.wire import CurvesView, Event, ExperimentState, ProblemView, SeriesView, TrialState
from detlab.testing.api import FakeMaster, Fault

QUICK = Backoff(first=0.01, most=0.02)


@pytest.fixture
async def aclient(master: FakeMaster) -> "Iterator[AsyncClient]":
    async with AsyncClient(master.url, master.token, backoff=QUICK) as made:
        yield made


def numbered(master: FakeMaster, experiment_id: int, count: int) -> None:
    for n in range(count):
        master.publish("metrics", experiment_id, {"group": "training", "steps_completed": n}, trial_id=1)


# --- submitting -------------------------------------------------------------------------------------------


def test_a_submit_uploads_the_code_once(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    first = client.create_experiment({"name": "one"}, tmp_path)
    second = client.create_experiment("name: two\nentrypoint: python train.py\n", tmp_path)
    assert (first.id, second.id) == (1, 2)
    assert [method for method, path in master.requests if path.startswith("bundles/")] == ["HEAD", "PUT", "HEAD"]
    assert master.submitted[0].bundle in master.bundles
    assert master.submitted[1].config_yaml == "name: two\nentrypoint: python train.py\n"


@pytest.mark.parametrize("kind", ["lose_reply", "refuse", "unavailable", "html"])
def test_a_repeated_submit_is_never_doubled(master: FakeMaster, client: Client, kind: str) -> None:
    master.faults.append(Fault("POST", "experiments", kind))
    experiment = client.create_experiment({"name": "one"})
    assert list(master.experiments) == [experiment.id] == [1]
    assert len({item.idempotency_key for item in master.submitted}) == 1


def test_the_same_key_gives_the_same_experiment(master: FakeMaster, client: Client) -> None:
    first = client.submit({"name": "one"}, idempotency_key="cell-4")
    again = client.submit({"name": "one"}, idempotency_key="cell-4")
    assert first.experiment == again.experiment
    assert (first.created, again.created) == (True, False)


def test_a_dry_run_makes_no_experiment(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)\n")
    judged = client.submit({"name": "one"}, bundle=build_bundle(tmp_path), dry_run=True)
    assert judged.experiment is None
    assert master.submitted[0].bundle in master.bundles  # the master looks for the entrypoint in it
    assert not master.experiments


def test_config_mistakes_come_back_with_their_paths(master: FakeMaster, client: Client) -> None:
    master.problems = [ProblemView(path="searcher.metric", message="is missing", hint="name it")]
    with pytest.raises(ConfigError) as caught:
        client.create_experiment({"name": "x"})
    assert [str(problem) for problem in caught.value.problems] == ["searcher.metric: is missing (name it)"]


def test_warnings_are_handed_on(master: FakeMaster, client: Client) -> None:
    master.warnings = [ProblemView(path="resources.shm_size", message="has no effect", level="warning")]
    assert [item.path for item in client.submit({}).warnings] == ["resources.shm_size"]


def test_a_template_is_merged_under_the_config(master: FakeMaster, client: Client) -> None:
    client.create_experiment({"name": "mine"}, template={"name": "theirs", "max_restarts": 1})
    assert master.submitted[0].config == {"name": "mine", "max_restarts": 1}


# --- errors -----------------------------------------------------------------------------------------------


def test_a_get_survives_a_master_that_restarts(master: FakeMaster, client: Client) -> None:
    master.faults.extend([Fault("GET", "me", "unavailable"), Fault("GET", "me", "refuse"), Fault("GET", "me", "html")])
    assert client.whoami().name == "alice"


def test_a_master_that_stays_away_is_named(master: FakeMaster, client: Client) -> None:
    master.faults.extend([Fault("GET", "me", "unavailable")] * 10)
    with pytest.raises(Unavailable, match="master behind it"):
        client.whoami()


def test_nobody_listens(tmp_path: Path) -> None:
    address = ClusterAddress("http://127.0.0.1:9/services/detlab/", "t", "the folder", tmp_path)
    began = time.monotonic()
    with pytest.raises(ClusterUnreachable) as caught, Client(address=address) as lost:
        lost.whoami()
    assert time.monotonic() - began < 3
    assert str(tmp_path) in caught.value.message
    assert "http://127.0.0.1:9/services/detlab/" in caught.value.message
    assert f"det up --dir {tmp_path}" in str(caught.value.hint)


def test_a_wrong_token_says_how_to_log_in(master: FakeMaster) -> None:
    with pytest.raises(AuthError) as caught, Client(master.url, "wrong") as stranger:
        stranger.whoami()
    assert "det login" in str(caught.value.hint)


def test_no_token_is_an_error_before_any_request(master: FakeMaster) -> None:
    with pytest.raises(AuthError, match="no token"):
        Client(master.url)
    assert master.requests == []


def test_unknown_things(client: Client) -> None:
    for call in (client.get_experiment, client.get_trial):
        with pytest.raises(NotFound, match="99"):
            call(99)
    with pytest.raises(NotFound):
        client.get_checkpoint("../../me")


def test_a_proxy_of_the_environment_is_not_asked_for_loopback(
    master: FakeMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with Client(master.url, master.token) as direct:
        assert direct.whoami().name == "alice"


# --- lists ------------------------------------------------------------------------------------------------


def test_lists_come_in_pages(master: FakeMaster, client: Client) -> None:
    for n in range(450):
        master.experiments[n + 1] = master.add_experiment(f"e{n}")
    assert [item.id for item in client.list_experiments()] == list(range(450, 0, -1))
    assert [item.id for item in client.list_experiments(limit=3)] == [450, 449, 448]
    assert [item.name for item in client.list_experiments(name="e449")] == ["e449"]


def test_logs_come_in_pages_and_by_tail(master: FakeMaster, client: Client) -> None:
    master.add_trial(master.add_experiment().id)
    for n in range(130):
        master.log(1, f"line {n}", rank=n % 2)
    trial = client.get_trial(1)
    assert [line.text for line in trial.logs()] == [f"line {n}" for n in range(130)]
    assert [line.text for line in trial.logs(2)] == ["line 128", "line 129"]
    assert len(trial.logs(rank=1)) == 65
    assert [line.text for line in trial.logs(search="line 77")] == ["line 77"]


def test_reports_are_joined_from_curves(master: FakeMaster, client: Client) -> None:
    master.add_trial(master.add_experiment().id)
    master.series[1] = [
        SeriesView(trial_id=1, group="training", name="loss", steps=[1, 2], values=[0.5, float("nan")], times=[1, 2]),
        SeriesView(trial_id=1, group="training", name="<img>", steps=[2], values=[float("inf")], times=[2]),
    ]
    found = list(client.get_trial(1).iter_metrics("training"))
    assert [(item.steps_completed, sorted(item.metrics)) for item in found] == [(1, ["loss"]), (2, ["<img>", "loss"])]
    assert found[1].metrics["loss"] != found[1].metrics["loss"]
    assert found[1].metrics["<img>"] == float("inf")


# --- streams ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["cut", "cut_mid_line"])
def test_a_stream_goes_on_through_disconnects(master: FakeMaster, client: Client, kind: str) -> None:
    master.add_experiment()
    numbered(master, 1, 20)
    master.update_experiment(1, state=ExperimentState.COMPLETED)
    for lines in (3, 0, 7):
        master.faults.append(Fault("GET", "experiments/1/stream", kind, lines=lines))
    master.faults.append(Fault("GET", "experiments/1/stream", "unavailable"))
    told: list[float] = []
    events = list(client.get_experiment(1).stream(after=0, notice=lambda _, pause: told.append(pause)))
    assert [event.id for event in events] == list(range(1, 23))
    assert [event.data["steps_completed"] for event in events if event.kind == "metrics"] == list(range(20))
    assert told


async def test_the_asynchronous_stream_goes_on_too(master: FakeMaster, aclient: AsyncClient) -> None:
    master.add_experiment()
    numbered(master, 1, 20)
    master.update_experiment(1, state=ExperimentState.COMPLETED)
    master.faults.append(Fault("GET", "experiments/1/stream", "cut_mid_line", lines=5))
    experiment = await aclient.get_experiment(1)
    events = [event async for event in experiment.stream(after=0)]
    assert [event.id for event in events] == list(range(1, 23))
    assert experiment.state is ExperimentState.COMPLETED


def test_a_cursor_that_is_too_old_gets_a_fresh_snapshot(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    numbered(master, 1, 5)
    master.oldest = 4
    stream = client.get_experiment(1).stream(after=1)
    first = next(stream)
    assert first.kind == "resync"
    snapshot = CurvesView.model_validate(first.data)
    assert (snapshot.cursor, snapshot.experiment.id) == (6, 1)
    numbered(master, 1, 1)
    master.update_experiment(1, state=ExperimentState.CANCELED)
    assert [event.id for event in stream] == [7, 8]


def test_watching_begins_with_the_snapshot(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    watched = client.get_experiment(1).watch()
    assert isinstance(next(watched), CurvesView)
    numbered(master, 1, 1)
    event = next(watched)
    assert isinstance(event, Event)
    assert event.kind == "metrics"
    watched.close()


def test_watching_something_that_has_ended_is_one_snapshot(master: FakeMaster, client: Client) -> None:
    master.add_experiment(state=ExperimentState.COMPLETED)
    assert [type(item) for item in client.get_experiment(1).watch()] == [CurvesView]


def test_a_stream_that_starts_after_the_end_still_ends(master: FakeMaster, client: Client) -> None:
    master.add_experiment(state=ExperimentState.COMPLETED)
    assert list(client.get_experiment(1).stream(after=1)) == []


def test_waiting_ends_with_the_experiment(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    experiment = client.get_experiment(1)
    master.faults.append(Fault("GET", "experiments/1/stream", "unavailable"))
    ender = threading.Timer(0.1, master.update_experiment, (1,), {"state": ExperimentState.ERROR})
    ender.start()
    assert experiment.wait(timeout=30) is ExperimentState.ERROR
    ender.join()
    assert experiment.config == {"name": "digits"}


def test_waiting_has_a_limit(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    master.keep_alive = 60
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="still ACTIVE"):
        client.get_experiment(1).wait(timeout=0.3)
    assert time.monotonic() - began < 5


async def test_waiting_asynchronously(master: FakeMaster, aclient: AsyncClient) -> None:
    master.add_experiment()
    experiment = await aclient.get_experiment(1)
    with pytest.raises(TimeoutError):
        await experiment.wait(timeout=0.2)
    await experiment.kill()
    assert await experiment.wait(timeout=30) is ExperimentState.CANCELED


def test_waiting_survives_a_master_that_is_away_when_asked(master: FakeMaster, client: Client) -> None:
    """Regression: the question after a closed stream met the outage that closed it, and ended the waiting."""
    master.add_experiment()
    master.faults.append(Fault("GET", "experiments/1/stream", "cut", lines=0))
    experiment = client.get_experiment(1)
    master.faults.extend([Fault("GET", "experiments/1$", "unavailable")] * 6)
    numbered(master, 1, 1)
    ender = threading.Timer(0.2, master.update_experiment, (1,), {"state": ExperimentState.COMPLETED})
    ender.start()
    assert experiment.wait(timeout=30) is ExperimentState.COMPLETED
    ender.join()


def test_the_first_trial_is_awaited(master: FakeMaster, client: Client) -> None:
    master.add_experiment()
    maker = threading.Timer(0.1, master.add_trial, (1,))
    maker.start()
    assert client.get_experiment(1).await_first_trial(timeout=30).id == 1
    maker.join()
    with pytest.raises(TimeoutError):
        client.get_experiment(master.add_experiment().id).await_first_trial(timeout=0.1)


def test_log_following_ends_with_the_trial(master: FakeMaster, client: Client) -> None:
    master.add_trial(master.add_experiment().id)
    for n in range(5):
        master.log(1, f"line {n}")
    master.faults.append(Fault("GET", "trials/1/logs/stream", "cut_mid_line", lines=2))

    def end() -> None:
        master.log(1, "the last")
        master.update_trial(1, state=TrialState.COMPLETED)

    ender = threading.Timer(0.1, end)
    ender.start()
    lines = [line.text for line in client.get_trial(1).iter_logs(follow=True, after=1)]
    ender.join()
    assert lines == [*(f"line {n}" for n in range(1, 5)), "the last"]


# --- steering ---------------------------------------------------------------------------------------------


def test_steering(master: FakeMaster, client: Client) -> None:
    experiment = client.create_experiment({"name": "x"}, activate=False)
    assert experiment.state is ExperimentState.PAUSED
    experiment.activate()
    assert experiment.state is ExperimentState.ACTIVE
    experiment.cancel()
    assert experiment.state is ExperimentState.CANCELED
    experiment.delete()
    with pytest.raises(NotFound):
        experiment.reload()


# --- checkpoints ------------------------------------------------------------------------------------------

FILES = {"model.bin": b"x" * 100_000, "deep/state.json": b"{}", "deep/copy.json": b"{}"}


def test_a_download_is_complete_and_verified(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, FILES)
    checkpoint = client.get_checkpoint(view.uuid)
    told: list[tuple[int, int]] = []
    target = checkpoint.download(tmp_path / "best", progress=lambda done, total: told.append((done, total)))
    assert {path.relative_to(target).as_posix(): path.read_bytes() for path in target.rglob("*.*")} == FILES
    assert told[-1] == (view.size, view.size)
    asked = len(master.requests)
    assert checkpoint.download(tmp_path / "best") == target
    assert len(master.requests) == asked
    assert list(tmp_path.glob(".*partial")) == []


async def test_an_asynchronous_download(master: FakeMaster, aclient: AsyncClient, tmp_path: Path) -> None:
    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, FILES)
    master.faults.append(Fault("GET", "checkpoints/.*/files", "unavailable"))
    target = await (await aclient.get_checkpoint(view.uuid)).download(tmp_path / "best")
    assert (target / "model.bin").read_bytes() == FILES["model.bin"]


def test_a_damaged_file_leaves_nothing(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, FILES)
    master.blobs[view.files["model.bin"].digest] = b"y" * 100_000
    with pytest.raises(CheckpointError, match=r"model\.bin.*altered or damaged"):
        client.get_checkpoint(view.uuid).download(tmp_path / "best")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["../evil", "/etc/evil", "a/../../evil", "a\\b", "", "a//b", "./a"])
def test_a_hostile_path_is_refused(master: FakeMaster, client: Client, tmp_path: Path, path: str) -> None:
    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, {path: b"evil"})
    with pytest.raises(CheckpointError, match="outside of itself"):
        client.get_checkpoint(view.uuid).download(tmp_path / "in" / "best")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_something_else_is_kept(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, FILES)
    (tmp_path / "best").mkdir()
    (tmp_path / "best" / "mine").write_text("precious")
    with pytest.raises(StorageError, match="exists"):
        client.get_checkpoint(view.uuid).download(tmp_path / "best")
    assert (tmp_path / "best" / "mine").read_text() == "precious"


def test_direct_copies_from_the_storage(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    master.add_trial(master.add_experiment().id)
    storage = {"type": "shared_fs", "host_path": str(tmp_path / "shared"), "storage_path": "ckpt"}
    view = master.add_checkpoint(1, FILES, storage=storage)
    checkpoint = client.get_checkpoint(view.uuid)
    with pytest.raises(StorageError, match="not readable on this machine"):
        checkpoint.download(tmp_path / "a", "direct")
    for path, content in FILES.items():
        file = tmp_path / "shared" / "ckpt" / view.uuid / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    asked = len(master.requests)
    assert (checkpoint.download(tmp_path / "a", "direct") / "deep/state.json").read_bytes() == b"{}"
    assert checkpoint.download(tmp_path / "b") == tmp_path / "b"
    assert len(master.requests) == asked
    file.write_bytes(b"changed")
    with pytest.raises(CheckpointError):
        checkpoint.download(tmp_path / "c", "direct")


def test_the_best_checkpoint(master: FakeMaster, client: Client) -> None:
    master.add_trial(master.add_experiment(smaller_is_better=False).id)
    values = [0.5, float("nan"), None, 0.9, 0.7]
    uuids = [
        master.add_checkpoint(1, {"a": b"%d" % n}, validation=value, steps_completed=n).uuid
        for n, value in enumerate(values)
    ]
    experiment = client.get_experiment(1)
    assert experiment.top_checkpoint().uuid == uuids[3]
    assert [item.validation for item in experiment.top_n_checkpoints(2)] == [0.9, 0.7]
    steps = [item.steps_completed for item in experiment.list_checkpoints("steps_completed", "desc")]
    assert steps == [4, 3, 2, 1, 0]
    assert [item.uuid for item in experiment.list_checkpoints("val_loss", "asc", 2)] == [uuids[0], uuids[4]]
    assert client.get_trial(1).select_checkpoint(latest=True).uuid == uuids[4]
    with pytest.raises(ValueError, match="cannot be sorted by 'accuracy'"):
        experiment.list_checkpoints("accuracy")


def test_the_code_comes_back(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print(1)\n")
    experiment = client.create_experiment({"name": "x"}, tmp_path / "code")
    path = experiment.download_code(tmp_path / "out")
    assert f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" == experiment.view.bundle


# --- reprs ------------------------------------------------------------------------------------------------


def test_hostile_names_are_escaped_in_html(master: FakeMaster, client: Client) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    master.add_experiment(hostile, metric=hostile, warnings=[hostile], pending_reason=hostile)
    master.add_trial(1, hparams={hostile: hostile}, display_state=hostile)
    view = master.add_checkpoint(1, {"a": b""})
    for item in (client.get_experiment(1), client.get_trial(1), client.get_checkpoint(view.uuid)):
        assert "<img" not in item._repr_html_()
        assert len(repr(item)) < 200
    assert "&lt;img" in client.get_experiment(1)._repr_html_()


# --- twins ------------------------------------------------------------------------------------------------


def test_the_two_faces_have_the_same_verbs() -> None:
    pairs = [(Client, AsyncClient), (resources.Experiment, aresources.AsyncExperiment)]
    pairs += [(resources.Trial, aresources.AsyncTrial), (resources.Checkpoint, aresources.AsyncCheckpoint)]
    for one, other in pairs:
        verbs = {name for name in vars(one) if not name.startswith("_")}
        assert verbs == {name for name in vars(other) if not name.startswith("_")}
        for name in verbs:
            mine, theirs = (inspect.signature(getattr(cls, name)) for cls in (one, other))
            assert list(mine.parameters.values()) == list(theirs.parameters.values()), name


async def test_an_asynchronous_client_does_what_the_other_does(
    master: FakeMaster, aclient: AsyncClient, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("print(1)\n")
    experiment = await aclient.create_experiment({"name": "x"}, tmp_path / "code", template={"max_restarts": 1})
    assert master.submitted[0].config == {"name": "x", "max_restarts": 1}
    master.add_trial(1)
    master.add_agent()
    for n in range(3):
        master.log(1, f"line {n}")
    master.add_checkpoint(1, {"a": b"a"}, validation=0.5, steps_completed=3)
    master.series[1] = [SeriesView(trial_id=1, group="training", name="loss", steps=[1], values=[0.5], times=[1])]
    assert (await aclient.whoami()).name == "alice"
    assert (await aclient.get_cluster()).cluster_id == "c1"
    assert [agent.id for agent in await aclient.list_agents()] == ["node1"]
    assert [item.id async for item in aclient.iter_experiments()] == [1]
    assert [trial.id async for trial in experiment.iter_trials()] == [1]
    trial = await experiment.await_first_trial()
    assert await trial.get_experiment() == experiment
    assert [line.text for line in await trial.logs()] == ["line 0", "line 1", "line 2"]
    assert [line.text for line in await trial.logs(1)] == ["line 2"]
    assert [report.metrics async for report in trial.iter_metrics()] == [{"loss": 0.5}]
    best = await trial.select_checkpoint(best=True)
    assert best == await experiment.top_checkpoint() == (await trial.list_checkpoints())[0]
    assert await best.get_trial() == trial
    assert (await experiment.download_code(tmp_path)).is_file()
    assert (await experiment.curves()).cursor == len(master.events)
    await trial.kill()
    assert [line.id async for line in trial.iter_logs(follow=True)] == [1, 2, 3]
    await experiment.pause()
    await experiment.activate()
    await experiment.cancel()
    await experiment.delete()
    with pytest.raises(NotFound):
        await experiment.reload()


def test_an_interrupted_download_leaves_nothing(master: FakeMaster, client: Client, tmp_path: Path) -> None:
    def interrupt(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    master.add_trial(master.add_experiment().id)
    view = master.add_checkpoint(1, FILES)
    with pytest.raises(KeyboardInterrupt):
        client.get_checkpoint(view.uuid).download(tmp_path / "best", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_an_experiment_deleted_while_it_is_waited_for(master: FakeMaster, client: Client) -> None:
    master.add_experiment()

    def delete() -> None:
        master.await_request("GET", "experiments/1/stream")
        with master.changed:
            master.update_experiment(1, state=ExperimentState.DELETED)
            del master.experiments[1]

    deleter = threading.Thread(target=delete)
    deleter.start()
    assert client.get_experiment(1).wait(timeout=30) is ExperimentState.DELETED
    deleter.join()
