"""Both faces against a real socket: submitting, errors, pages, steering, and that they do the same."""

import time
from pathlib import Path

import pytest

from detlab.client.aclient import AsyncClient
from detlab.client.bundling.bundle import build_bundle
from detlab.client.client import Client
from detlab.client.transport.discovery import ClusterAddress
from detlab.errors import AuthError, ClusterUnreachable, ConfigError, NotFound, Unavailable
from detlab.schemas.wire import ExperimentState, ProblemView, SeriesView
from testbed.fake_master.api import ApiFault, FakeMaster

# --- submitting ---------------------------------------------------------------------------------------------


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
    master.faults.append(ApiFault("POST", "experiments", kind))
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


# --- errors -------------------------------------------------------------------------------------------------


def test_a_get_survives_a_master_that_restarts(master: FakeMaster, client: Client) -> None:
    master.faults.extend(
        [ApiFault("GET", "me", "unavailable"), ApiFault("GET", "me", "refuse"), ApiFault("GET", "me", "html")]
    )
    assert client.whoami().name == "alice"


def test_a_master_that_stays_away_is_named(master: FakeMaster, client: Client) -> None:
    master.faults.extend([ApiFault("GET", "me", "unavailable")] * 10)
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


# --- lists --------------------------------------------------------------------------------------------------


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


def test_a_pareto_front_is_of_the_config_or_of_named_metrics(master: FakeMaster, client: Client) -> None:
    metrics = [{"name": "loss"}, {"name": "size"}]
    config = {"name": "x", "searcher": {"metrics": metrics, "constraints": {"size": {"max": 9}}}}
    experiment = client.create_experiment(config)
    for loss, size in ((0.1, 50.0), (0.3, 4.0), (0.2, 8.0), (0.4, 5.0)):
        trial = master.add_trial(experiment.id).id
        master.series[trial] = [
            SeriesView(trial_id=trial, group="validation", name=name, steps=[7], values=[value], times=[20.0])
            for name, value in (("loss", loss), ("size", size))
        ]
    best = client.list_experiments()[0].pareto_front()
    assert [(one.trial_id, one.steps_completed, one.metrics) for one in best] == [
        (3, 7, {"loss": 0.2, "size": 8.0}),
        (2, 7, {"loss": 0.3, "size": 4.0}),
    ]
    assert best[0].end_time is not None
    with pytest.raises(ValueError, match="two metrics or more"):
        experiment.pareto_front(["loss"])


# --- steering -----------------------------------------------------------------------------------------------


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


# --- reprs --------------------------------------------------------------------------------------------------


def test_hostile_names_are_escaped_in_html(master: FakeMaster, client: Client) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    master.add_experiment(hostile, metric=hostile, warnings=[hostile], pending_reason=hostile)
    master.add_trial(1, hparams={hostile: hostile}, display_state=hostile)
    view = master.add_checkpoint(1, {"a": b""})
    for item in (client.get_experiment(1), client.get_trial(1), client.get_checkpoint(view.uuid)):
        assert "<img" not in item._repr_html_()
        assert len(repr(item)) < 200
    assert "&lt;img" in client.get_experiment(1)._repr_html_()


# --- asynchronous --------------------------------------------------------------------------------------------------


@pytest.mark.slow
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
