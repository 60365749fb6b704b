"""Who may do what over MLflow's protocol: what is another's is not told from what is not there (I9)."""

from __future__ import annotations

from typing import Any

import pytest
from test_mlflow_protocol import new_experiment, new_run

from detlab_hub.core.rights import ACTIONS
from detlab_hub.store.queries.storage import usage
from detlab_hub.web.mlflow.base import ProtocolHandler
from detlab_hub.web.routes import PROTOCOLS
from detlab_hub.web.scopes import CHANGING, PEOPLE, operation_of

FILES = "mlflow/api/2.0/mlflow-artifacts/artifacts"
NOBODYS = "f" * 32


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """One database: rights are the same on both."""
    return sqlite_url


async def everything(ask: Any, run: str, experiment: str, model: str) -> list[tuple[str, int, Any]]:
    """Ask for all that can be asked about a run, an experiment and a logged model."""
    found = []
    for verb, path, fields in (
        ("GET", "runs/get", {"run_id": run}),
        ("POST", "runs/update", {"run_id": run, "status": "KILLED"}),
        ("POST", "runs/delete", {"run_id": run}),
        ("POST", "runs/restore", {"run_id": run}),
        ("POST", "runs/log-metric", {"run_id": run, "key": "a", "value": 1, "timestamp": 1}),
        ("POST", "runs/log-parameter", {"run_id": run, "key": "a", "value": "1"}),
        ("POST", "runs/log-batch", {"run_id": run, "tags": [{"key": "a", "value": "1"}]}),
        ("POST", "runs/set-tag", {"run_id": run, "key": "a", "value": "1"}),
        ("POST", "runs/delete-tag", {"run_id": run, "key": "team"}),
        ("POST", "runs/log-inputs", {"run_id": run}),
        ("POST", "runs/outputs", {"run_id": run}),
        ("POST", "runs/log-model", {"run_id": run}),
        ("GET", "metrics/get-history", {"run_id": run, "metric_key": "loss"}),
        ("GET", "artifacts/list", {"run_id": run}),
        ("POST", "logged-models", {"source_run_id": run, "name": "m"}),
        ("GET", f"logged-models/{model}", {}),
        ("PATCH", f"logged-models/{model}", {"status": "LOGGED_MODEL_READY"}),
        ("POST", f"logged-models/{model}/params", {}),
        ("PATCH", f"logged-models/{model}/tags", {}),
        ("GET", "experiments/get", {"experiment_id": experiment}),
        ("POST", "experiments/update", {"experiment_id": experiment, "new_name": "mine"}),
        ("POST", "experiments/delete", {"experiment_id": experiment}),
        ("POST", "experiments/restore", {"experiment_id": experiment}),
        ("POST", "experiments/set-experiment-tag", {"experiment_id": experiment, "key": "a", "value": "b"}),
        ("POST", "runs/create", {"experiment_id": experiment}),
        ("POST", "runs/search", {"experiment_ids": [experiment]}),
        ("POST", "logged-models/search", {"experiment_ids": [experiment]}),
        ("POST", "model-versions/create", {"name": "own", "source": f"runs:/{run}/m"}),
        ("POST", "model-versions/create", {"name": "own", "source": f"models:/{model}"}),
    ):
        status, reply = await ask(verb, path, **fields)
        told = str(reply)
        for one in (model, run, experiment):
            told = told.replace(one, "ID")
        found.append((f"{verb} {path.replace(model, 'ID')} {sorted(fields)}", status, told))
    for verb in ("GET", "PUT", "DELETE"):
        for root in (run, f"models/{model}"):
            reply = await ask.http.request(verb, f"{FILES}/{experiment}/{root}/artifacts/a.txt", content=b"x")
            said = reply.text.replace(model, "ID").replace(run, "ID").replace(experiment, "ID")
            found.append((f"{verb} {root.partition('/')[0] == run}", reply.status_code, said))
    return found


async def made(ask: Any, name: str = "secret") -> tuple[str, str, str]:
    """Make an experiment, a run with a metric and a file, and a logged model; return their ids."""
    experiment = await new_experiment(ask, name)
    run = await new_run(ask, experiment, "secret", team="t")
    await ask("POST", "runs/log-metric", run_id=run, key="loss", value=1, timestamp=1)
    _, reply = await ask("POST", "logged-models", source_run_id=run, name="m")
    model = reply["model"]["info"]["model_id"]
    for root in (run, f"models/{model}"):
        assert (await ask.http.put(f"{FILES}/{experiment}/{root}/artifacts/a.txt", content=b"x")).status_code == 200
    return run, experiment, model


async def test_what_is_anothers_is_answered_as_what_is_not_there(door: Any) -> None:
    alice, bob = door.of("alice"), door.of("bob")
    run, experiment, model = await made(alice)
    await bob("POST", "registered-models/create", name="own")
    theirs = await everything(bob, run, experiment, model)
    nobodys = await everything(bob, NOBODYS, "1000000999999", f"m-{NOBODYS}")
    assert theirs == nobodys
    for what, status, told in theirs:
        assert "secret" not in told
        assert status in {400, 404} or told == "{}", (what, status, told)
    status, reply = await bob("GET", "experiments/get-by-name", experiment_name="secret")
    assert (status, reply["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")
    _, reply = await bob("POST", "experiments/search")
    assert "secret" not in str(reply)
    _, reply = await alice("GET", "runs/get", run_id=run)
    assert reply["run"]["info"]["status"] == "RUNNING"
    assert {one["key"] for one in reply["run"]["data"]["tags"]} == {"team", "mlflow.runName"}


async def test_a_name_alone_is_never_anothers_experiment(door: Any) -> None:
    alice, bob = door.of("alice"), door.of("bob")
    theirs = await new_experiment(alice, "cifar")
    assert await new_experiment(bob, "cifar") != theirs


async def test_personal_workspaces_of_others_are_in_no_list_of_an_administrator(door: Any) -> None:
    alice, root = door.of("alice"), door.of("root")
    number = await new_experiment(alice, "cifar")
    _, reply = await root("POST", "experiments/search")
    assert "alice" not in str(reply)
    status, reply = await root("GET", "experiments/get", experiment_id=number)
    assert (status, reply["experiment"]["experiment_id"]) == (200, number)


async def test_members_of_a_workspace_have_what_their_roles_give(door: Any) -> None:
    await door.world.workspace("lab", "digits", bob="editor", vic="viewer", wanda="admin")
    alice, bob, vic, wanda, mallory = map(door.of, ("alice", "bob", "vic", "wanda", "mallory"))
    _, reply = await alice("GET", "experiments/get-by-name", experiment_name="lab/digits")
    number = reply["experiment"]["experiment_id"]
    run = await new_run(alice, number)
    for ask, name in ((bob, "alice/lab/digits"), (vic, "alice/lab/digits")):
        _, reply = await ask("GET", "experiments/get-by-name", experiment_name=name)
        assert reply["experiment"]["experiment_id"] == number
        assert (await ask("GET", "runs/get", run_id=run))[0] == 200
        _, reply = await ask("POST", "runs/search", experiment_ids=[number])
        assert len(reply["runs"]) == 1
    assert (await bob("POST", "runs/set-tag", run_id=run, key="a", value="b"))[0] == 200
    assert (await bob("POST", "runs/create", experiment_id=number))[0] == 200
    for verb in (vic, mallory):
        refused = {403: "PERMISSION_DENIED", 404: "RESOURCE_DOES_NOT_EXIST"}
        for path, fields in (("runs/set-tag", {"key": "a", "value": "b"}), ("runs/delete", {})):
            status, reply = await verb("POST", path, run_id=run, **fields)
            assert (status, reply["error_code"]) == (403 if verb is vic else 404, refused[403 if verb is vic else 404])
        assert (await verb("POST", "runs/create", experiment_id=number))[0] == (403 if verb is vic else 404)
    assert (await bob("POST", "runs/delete", run_id=run))[0] == 403
    assert (await wanda("POST", "runs/delete", run_id=run))[0] == 200


async def test_a_trials_token_reaches_its_experiment_and_no_more(door: Any) -> None:
    alice = door.of("alice")
    run, experiment, model = await made(alice)  # of the same user, and yet not the trial's
    trial, beside = await door.trial(), await door.trial()
    task = door.of(trial.token)
    own = await new_run(task, "0")
    assert own == f"{trial.id:032x}"
    await alice("POST", "registered-models/create", name="own")
    theirs = await everything(task, run, experiment, model)
    others = f"{beside.id:032x}"
    for _, status, told in theirs:
        if "experiment_id" not in _ and "experiment_ids" not in _:
            assert status == 403, (_, status, told)
            assert "PERMISSION_DENIED" in told
    _, reply = await task("POST", "runs/search", experiment_ids=[experiment])
    assert reply == {}
    for verb, path, fields in (
        ("GET", "runs/get", {}),
        ("POST", "runs/set-tag", {"key": "a", "value": "b"}),
        ("POST", "runs/log-metric", {"key": "a", "value": 1, "timestamp": 1}),
    ):
        assert (await task(verb, path, run_id=others, **fields))[0] == 403
        absent = await task(verb, path, run_id=NOBODYS, **fields)
        assert absent == await task(verb, path, run_id=run, **fields)
    for path in ("registered-models/search", "model-versions/search", "registered-models/alias"):
        assert (await task("GET", path, name="own", alias="x"))[0] == 403
    for path, fields in (
        ("experiments/delete", {"experiment_id": str(trial.experiment)}),
        ("experiments/set-experiment-tag", {"experiment_id": "0", "key": "a", "value": "b"}),
        ("runs/delete", {"run_id": own}),
    ):
        assert (await task("POST", path, **fields))[0] == 403


OTHERWISE = ("0" * 30 + "_1", "0" * 30 + " 1", "+" + "0" * 30 + "1", "0" * 31 + "\u0661", "0" * 31 + "1\n")


@pytest.mark.parametrize("name", OTHERWISE)
async def test_a_trial_has_one_id_as_a_run(door: Any, name: str) -> None:
    """Python reads a number in more ways than one: each would have been another run of the same trial."""
    trial = await door.trial()
    task = door.of(trial.token)
    assert await new_run(task, "0") == f"{trial.id:032x}"
    assert trial.id == 1
    for ask, status in ((task, 403), (door.of("alice"), 404)):
        assert (await ask("POST", "runs/set-tag", run_id=name, key="a", value="b"))[0] == status


async def test_a_trial_registers_what_it_has_logged_itself(door: Any) -> None:
    trial = await door.trial()
    task, alice = door.of(trial.token), door.of("alice")
    run = await new_run(task, "0")
    base = f"{FILES}/0/{run}/artifacts"
    assert (await task.http.put(f"{base}/model/MLmodel", content=b"flavors: {}")).status_code == 200
    assert (await task("POST", "registered-models/create", name="digits"))[0] == 200
    status, reply = await task("POST", "model-versions/create", name="digits", source=f"runs:/{run}/model", run_id=run)
    assert (status, reply["model_version"]["version"], reply["model_version"]["status"]) == (200, "1", "READY"), reply
    _, reply = await alice("GET", "model-versions/get", name="digits", version="1")
    assert reply["model_version"]["run_id"] == run
    _, reply = await alice("GET", "model-versions/get-download-uri", name="digits", version="1")
    path = reply["artifact_uri"].removeprefix("mlflow-artifacts:/")
    assert (await alice.http.get(f"{FILES}/{path}/MLmodel")).content == b"flavors: {}"
    bob = door.of("bob")
    assert (await bob.http.get(f"{FILES}/{path}/MLmodel")).status_code == 404
    assert (await bob("GET", "model-versions/get", name="alice/digits", version="1"))[0] == 404
    # what was registered stays as it was
    assert (await task.http.put(f"{base}/model/MLmodel", content=b"changed")).status_code == 200
    assert (await alice.http.get(f"{FILES}/{path}/MLmodel")).content == b"flavors: {}"
    assert (await alice.http.put(f"{FILES}/{path}/MLmodel", content=b"x")).status_code == 400
    await bob("POST", "registered-models/create", name="digits")
    status, _ = await task("POST", "model-versions/create", name="bob/digits", source=f"runs:/{run}/model")
    assert status == 404
    folder = door.world.settings.artifacts_dir / path.split("/")[2]
    assert folder.is_dir()
    assert door.world.store.write_sync(lambda s: usage.of_user(s, "alice").used) == 11 + 7  # the snapshot counts, too
    assert (await alice("DELETE", "model-versions/delete", name="digits", version="1"))[0] == 200
    assert not folder.exists()
    assert (await alice.http.get(f"{FILES}/{path}/MLmodel")).status_code == 404


@pytest.mark.parametrize(
    "source", ["file:///etc/passwd", "s3://b/x", "/etc", "http://10.0.0.1/", "dbfs:/x", "runs:/../x"]
)
async def test_no_address_of_a_source_is_opened(door: Any, source: str) -> None:
    ask = door.of("alice")
    await ask("POST", "registered-models/create", name="m")
    status, reply = await ask("POST", "model-versions/create", name="m", source=source)
    assert status in {400, 404}, reply


# --- every route


def concrete(path: str) -> str:
    return (
        path.replace("{model_id}", f"m-{NOBODYS}")
        .replace("{artifact_path}", "0/x/artifacts/a")
        .replace("{anything}", "x")
        .replace("{tag}", "t")
    )


def routes() -> list[tuple[str, str, Any]]:
    found = []
    for path, handler in PROTOCOLS:
        assert issubclass(handler, ProtocolHandler)
        for verb in handler.SUPPORTED_METHODS:
            if (operation := operation_of(handler, verb)) is not None:
                found.append((verb, concrete(path), operation))
    return found


async def test_only_a_bearer_token_opens_a_route_and_the_refusal_is_mlflows(door: Any) -> None:
    ask, agent = door.of("alice"), door.of("dtagent_unknown")
    assert len(routes()) > 60
    for verb, path, operation in routes():
        if operation.cross_site == "open":
            continue
        for headers in ({}, {"Cookie": "service-detlab=x; _xsrf=y"}, {"Authorization": "Basic YTpi"}):
            plain = {key: value for key, value in ask.http.headers.items() if key.lower() != "authorization"}
            request = ask.http.build_request(verb, path)
            request.headers.clear()
            request.headers.update({**plain, **headers, "Host": "x"})
            reply = await ask.http.send(request)
            assert (reply.status_code, reply.json()["error_code"]) == (401, "UNAUTHENTICATED"), (verb, path, headers)
            assert "location" not in reply.headers
        reply = await agent.http.request(verb, path)
        assert reply.status_code == 401


def test_each_verb_that_changes_something_names_its_action_and_none_takes_a_session() -> None:
    for verb, path, operation in routes():
        if operation.cross_site == "open":
            assert path in {"mlflow/", "mlflow/health", "mlflow/version"}
            continue
        assert operation.cross_site == "bearer"
        assert operation.scopes & PEOPLE
        assert operation.action in ACTIONS or operation.reads or verb not in CHANGING, (verb, path)


async def test_a_token_that_may_only_read_changes_nothing(door: Any) -> None:
    ask = door.of("alice!read")
    for verb, path, operation in routes():
        if operation.action is not None:
            reply = await ask.http.request(verb, path, content=b"{}")
            assert (reply.status_code, reply.json()["error_code"]) == (403, "PERMISSION_DENIED"), (verb, path)
