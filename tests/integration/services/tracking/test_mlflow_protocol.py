"""MLflow's protocol, message by message, on both databases: ids, order, filters, pages, values that are no numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from services_scripted import ALICE

from detlab_hub.services.experiments.trials import Trials

HEX = "0123456789abcdef"


async def new_run(ask: Any, experiment: str, name: str = "r", start: int = 1, **tags: str) -> str:
    sent = [{"key": key, "value": value} for key, value in tags.items()]
    status, reply = await ask(
        "POST", "runs/create", experiment_id=experiment, run_name=name, start_time=start, tags=sent
    )
    assert status == 200, reply
    return str(reply["run"]["info"]["run_id"])


async def new_experiment(ask: Any, name: str = "cifar") -> str:
    status, reply = await ask("POST", "experiments/create", name=name)
    assert status == 200, reply
    return str(reply["experiment_id"])


async def test_an_experiment_is_a_project_and_the_default_one_is_there(door: Any) -> None:
    ask = door.of("alice")
    status, reply = await ask("GET", "experiments/get-by-name", experiment_name="cifar")
    assert (status, reply["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")
    number = await new_experiment(ask)
    assert number.isdigit()
    status, reply = await ask("POST", "experiments/create", name="cifar")
    assert (status, reply["error_code"]) == (400, "RESOURCE_ALREADY_EXISTS")
    _, reply = await ask("GET", "experiments/get-by-name", experiment_name="cifar")
    assert reply["experiment"]["experiment_id"] == number
    assert reply["experiment"]["lifecycle_stage"] == "active"
    _, reply = await ask("GET", "experiments/get", experiment_id="0")
    assert (reply["experiment"]["experiment_id"], reply["experiment"]["name"]) == ("0", "Default")
    run = await new_run(ask, "0")
    _, reply = await ask("POST", "runs/search", experiment_ids=["0"])
    assert [one["info"]["run_id"] for one in reply["runs"]] == [run]


async def test_an_experiment_is_deleted_with_its_runs_and_comes_back_with_them(door: Any) -> None:
    ask = door.of("alice")
    number = await new_experiment(ask)
    run = await new_run(ask, number)
    assert await ask("POST", "experiments/delete", experiment_id=number) == (200, {})
    _, reply = await ask("GET", "experiments/get-by-name", experiment_name="cifar")
    assert reply["experiment"]["lifecycle_stage"] == "deleted"
    _, reply = await ask("GET", "runs/get", run_id=run)
    assert reply["run"]["info"]["lifecycle_stage"] == "deleted"
    assert await ask("POST", "runs/search", experiment_ids=[number]) == (200, {})
    _, reply = await ask("POST", "runs/search", experiment_ids=[number], run_view_type="DELETED_ONLY")
    assert len(reply["runs"]) == 1
    status, reply = await ask("POST", "runs/create", experiment_id=number)
    assert (status, reply["error_code"]) == (400, "INVALID_STATE")
    await ask("POST", "experiments/restore", experiment_id=number)
    _, reply = await ask("POST", "runs/search", experiment_ids=[number])
    assert len(reply["runs"]) == 1


async def test_a_run_keeps_what_is_logged_and_goes_on_after_its_end(door: Any) -> None:
    ask = door.of("alice")
    run = await new_run(ask, await new_experiment(ask), "first", 5, team="vision")
    metrics = [
        {"key": "loss", "value": 1.0, "timestamp": 10, "step": 0},
        {"key": "loss", "value": "NaN", "timestamp": 20, "step": 2},
        {"key": "loss", "value": "-Infinity", "timestamp": "15", "step": "1"},
        {"key": "val/acc é", "value": 0.5, "timestamp": 10, "step": -3},
    ]
    params = [{"key": "lr", "value": "0.1"}, {"key": "empty", "value": ""}]
    assert await ask("POST", "runs/log-batch", run_id=run, metrics=metrics, params=params) == (200, {})
    for _ in range(2):  # a repeated request changes nothing
        assert await ask("POST", "runs/log-batch", run_id=run, metrics=metrics, params=params) == (200, {})
    status, reply = await ask("POST", "runs/update", run_id=run, status="FINISHED", end_time=99)
    assert (reply["run_info"]["status"], reply["run_info"]["end_time"]) == ("FINISHED", 99)
    status, _ = await ask("POST", "runs/update", run_id=run, status=3, end_time=100)
    assert status == 200  # twice, and by the number of the name
    assert (await ask("POST", "runs/log-metric", run_uuid=run, key="late", value=2, timestamp=1))[0] == 200
    _, reply = await ask("GET", "runs/get", run_id=run)
    info, data = reply["run"]["info"], reply["run"]["data"]
    assert (info["run_id"], info["run_uuid"], info["run_name"], info["start_time"]) == (run, run, "first", 5)
    assert set(run) <= set(HEX)
    assert len(run) == 32
    assert info["artifact_uri"].startswith("mlflow-artifacts:/")
    assert {one["key"]: one["value"] for one in data["metrics"]} == {"loss": "NaN", "val/acc é": 0.5, "late": 2.0}
    assert {one["key"]: one["value"] for one in data["params"]} == {"lr": "0.1", "empty": ""}
    assert {one["key"]: one["value"] for one in data["tags"]} == {"team": "vision", "mlflow.runName": "first"}
    _, reply = await ask("GET", "metrics/get-history", run_id=run, metric_key="loss")
    assert [(one["step"], one["value"], one["timestamp"]) for one in reply["metrics"]] == [
        (0, 1.0, 10),
        (1, "-Infinity", 15),
        (2, "NaN", 20),
    ]
    assert await ask("GET", "metrics/get-history", run_id=run, metric_key="none") == (200, {})


async def test_all_values_of_one_step_are_kept_and_the_last_is_by_step_then_time(door: Any) -> None:
    """Keras' autolog logs validation metrics at step 0 in each epoch."""
    ask = door.of("alice")
    run = await new_run(ask, await new_experiment(ask))
    for time, value in ((30, 3.0), (10, 1.0), (20, 2.0)):
        await ask("POST", "runs/log-metric", run_id=run, key="v", value=value, timestamp=time)
    pages, token = [], ""
    while True:
        _, reply = await ask("GET", "metrics/get-history", run_id=run, metric_key="v", max_results=2, page_token=token)
        pages.append([one["value"] for one in reply["metrics"]])
        token = reply.get("next_page_token", "")
        if not token:
            break
    assert pages == [[1.0, 2.0], [3.0]]
    _, reply = await ask("GET", "runs/get", run_id=run)
    assert reply["run"]["data"]["metrics"][0]["value"] == 3.0


async def test_searches_have_mlflows_filters_and_order(door: Any) -> None:
    ask = door.of("alice")
    number = await new_experiment(ask)
    values: dict[str, float | None] = {"a": 0.5, "b": 0.1, "c": math.nan, "d": None, "e": 0.9}
    runs = {}
    for start, (name, value) in enumerate(values.items()):
        runs[name] = await new_run(ask, number, name, start, team="Vision" if name in "ab" else "speech")
        if value is not None:
            said: Any = "NaN" if math.isnan(value) else value
            await ask("POST", "runs/log-metric", run_id=runs[name], key="loss", value=said, timestamp=1)
        await ask("POST", "runs/log-parameter", run_id=runs[name], key="opt", value="adam" if name < "c" else "sgd")

    async def found(where: str = "", *order: str, **more: Any) -> str:
        status, reply = await ask(
            "POST", "runs/search", experiment_ids=[number], filter=where, order_by=list(order), **more
        )
        assert status == 200, reply
        return "".join(one["info"]["run_name"] for one in reply.get("runs", []))

    assert await found() == "edcba"  # the newest first
    assert await found("", "metrics.loss ASC") == "baecd"  # NaN before none, both last
    assert await found("", "metrics.loss DESC") == "eabcd"
    assert await found("", "params.opt", "attributes.start_time ASC") == "abcde"
    assert await found("metrics.loss < 0.6") == "ba"
    assert await found("metrics.loss != 0.5") == "ecb"
    assert await found("tags.team = 'Vision' and params.opt = 'adam'") == "ba"
    assert await found("tags.team != 'Vision'") == "edc"
    assert await found("tags.nothing != 'x'") == ""
    assert await found("tags.team LIKE 'vis%'") == ""
    assert await found("tags.team ILIKE 'vis%'") == "ba"
    assert await found("tags.team LIKE '_is%'") == "ba"
    assert await found("tags.team LIKE '[V]%'") == ""
    assert await found(f"run_id IN ('{runs['a']}', '{runs['e']}')") == "ea"
    assert await found("status = 'RUNNING' and attributes.start_time >= 3") == "ed"
    assert await found("tags.nothing IS NULL") == "edcba"
    _, reply = await ask("POST", "runs/search", experiment_ids=[number], max_results=2)
    assert (len(reply["runs"]), reply["next_page_token"]) == (2, "2")
    assert await found(max_results=2, page_token="4") == "a"
    status, reply = await ask("POST", "runs/search", experiment_ids=[number], filter="metrics.loss >> 1")
    assert (status, reply["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert "column" in reply["message"]


async def test_trials_are_found_as_runs_of_their_experiment(door: Any) -> None:
    trial = await door.trial(hyperparameters={"lr": 0.1, "net": {"depth": 3}}, name="mnist")
    task = door.of(trial.token)
    run = await new_run(task, "0")
    batch = [{"key": "val_loss", "value": 0.5, "timestamp": 1000, "step": 1}]
    assert await task("POST", "runs/log-batch", run_id=run, metrics=batch) == (200, {})
    ask = door.of("alice")
    _, reply = await ask("GET", "experiments/get", experiment_id=str(trial.experiment))
    assert reply["experiment"]["name"] == "mnist"
    for where, count in {
        "": 1,
        "params.lr = '0.1'": 1,
        "params.`net.depth` = '3'": 1,
        "metrics.val_loss <= 0.5": 1,
        "metrics.val_loss > 0.5": 0,
        "status = 'RUNNING'": 1,
        "user_id = 'alice'": 1,
        f"run_id = '{run}'": 1,
    }.items():
        _, reply = await ask("POST", "runs/search", experiment_ids=[str(trial.experiment)], filter=where)
        assert len(reply.get("runs", [])) == count, where
    _, reply = await ask("GET", "runs/get", run_id=run)
    assert {one["key"]: one["value"] for one in reply["run"]["data"]["params"]} == {"lr": "0.1", "net.depth": "3"}
    _, reply = await ask("GET", "metrics/get-history", run_id=run, metric_key="val_loss")
    assert [(one["step"], one["value"], one["timestamp"]) for one in reply["metrics"]] == [(1, 0.5, 1000)]
    status, reply = await ask("POST", "runs/create", experiment_id=str(trial.experiment))
    assert (status, reply["error_code"]) == (400, "INVALID_STATE")
    status, reply = await ask("POST", "runs/log-metric", run_id=run, key="x", value=1, timestamp=1)
    assert (status, reply["error_code"]) == (403, "PERMISSION_DENIED")
    assert (await ask("POST", "runs/set-tag", run_id=run, key="best", value="yes"))[0] == 200


async def test_the_search_goes_by_what_a_client_logs(door: Any) -> None:
    searcher = {"name": "single", "metric": "accuracy", "smaller_is_better": False}
    trial = await door.trial(searcher=searcher)
    task = door.of(trial.token)
    run = await new_run(task, "0")
    for step, value in ((1, 0.5), (2, 0.9), (3, 0.7)):
        await task("POST", "runs/log-metric", run_id=run, key="accuracy", value=value, timestamp=step, step=step)
    view = await door.world.services[Trials].get(ALICE, trial.id)
    assert (view.best_validation, view.state) == (0.9, "ACTIVE")


async def test_another_attempt_begins_the_trial_anew_and_its_metrics_replace_those_before(door: Any) -> None:
    trial = await door.trial()
    task = door.of(trial.token)
    first = await new_run(task, "0")
    assert await new_run(task, "0") != first  # the second of an attempt is a child
    for step in range(3):
        await task("POST", "runs/log-metric", run_id=first, key="loss", value=step, timestamp=step, step=step)
    trial.task._exit(1)
    world, later = door.world, []

    async def runs_again() -> bool:
        later[:] = [one for one in world.agents["node"].tasks.values() if one.caller.run > trial.caller.run]
        return bool(later)

    await world.until(runs_again)
    (again,) = later
    status, reply = await task("POST", "runs/log-metric", run_id=first, key="loss", value=9, timestamp=9, step=9)
    assert (status, reply["error_code"]) == (409, "PERMISSION_DENIED")
    task = door.of(again.launch.task_token)
    assert await new_run(task, "0") == first
    await task("POST", "runs/log-metric", run_id=first, key="loss", value=7, timestamp=7, step=0)
    _, reply = await task("GET", "metrics/get-history", run_id=first, metric_key="loss")
    assert [(one["step"], one["value"]) for one in reply["metrics"]] == [(0, 7.0)]


async def test_files_are_listed_by_both_of_mlflows_ways(door: Any) -> None:
    ask = door.of("alice")
    number = await new_experiment(ask)
    run = await new_run(ask, number)
    files = "mlflow/api/2.0/mlflow-artifacts/artifacts"
    for path in ("a.txt", "sub%20dir/b%C3%A9%2B.bin", "sub%20dir/deep/c"):
        reply = await ask.http.put(f"{files}/{number}/{run}/artifacts/{path}", content=b"12345")
        assert reply.status_code == 200, reply.text
    _, listed = await ask("GET", "artifacts/list", run_id=run, path="sub dir")
    assert listed["files"] == [
        {"path": "sub dir/bé+.bin", "is_dir": False, "file_size": 5},
        {"path": "sub dir/deep", "is_dir": True},
    ]
    reply = await ask.http.get(files, params={"path": f"{number}/{run}/artifacts/sub dir"})
    assert [one["path"] for one in reply.json()["files"]] == ["bé+.bin", "deep"]
    assert (await ask.http.get(files, params={"path": f"{number}/{run}/artifacts/none"})).json() == {}
    reply = await ask.http.get(f"{files}/{number}/{run}/artifacts/a.txt")
    assert (reply.content, reply.headers["content-disposition"]) == (b"12345", "attachment")
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    missing = await ask.http.get(f"{files}/{number}/{run}/artifacts/none")
    assert (missing.status_code, missing.json()["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")
    for _ in range(2):
        assert (await ask.http.delete(f"{files}/{number}/{run}/artifacts/sub%20dir")).json() == {}
    _, listed = await ask("GET", "artifacts/list", run_id=run)
    assert [one["path"] for one in listed["files"]] == ["a.txt"]


@pytest.mark.parametrize(
    ("verb", "path", "status", "code"),
    [
        ("POST", "api/2.0/mlflow-artifacts/mpu/create/0/x", 501, "NOT_IMPLEMENTED"),
        ("GET", "api/2.0/mlflow-artifacts/presigned/0/x", 501, "NOT_IMPLEMENTED"),
        ("GET", "api/3.0/mlflow/server-info", 404, "ENDPOINT_NOT_FOUND"),
        ("POST", "api/3.0/mlflow/traces", 404, "ENDPOINT_NOT_FOUND"),
        ("GET", "ajax-api/2.0/mlflow/metrics/get-history-bulk", 404, "ENDPOINT_NOT_FOUND"),
        ("POST", "api/2.0/mlflow/users/create", 404, "ENDPOINT_NOT_FOUND"),
    ],
)
async def test_what_is_not_served_says_so_in_mlflows_words(
    door: Any, verb: str, path: str, status: int, code: str
) -> None:
    reply = await door.of("alice").http.request(verb, f"mlflow/{path}", content=b"{}")
    assert (reply.status_code, reply.json()["error_code"]) == (status, code)
    if "users" in path:
        assert "det workspace" in reply.json()["message"]


async def test_the_address_of_a_run_that_clients_print_leads_to_the_page(door: Any) -> None:
    reply = await door.of("").http.get(f"{door.base}mlflow/", follow_redirects=False)
    assert reply.status_code == 302
    assert reply.url.join(reply.headers["Location"]).path == "/services/detlab/"
