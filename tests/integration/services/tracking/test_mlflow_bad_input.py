"""Requests that say what cannot be: a clear error in MLflow's words, never a 5xx, which clients repeat for minutes."""

from __future__ import annotations

from typing import Any

import pytest
from test_mlflow_protocol import new_experiment, new_run

from detlab_hub.services.tracking import logging, runs

FILES = "mlflow/api/2.0/mlflow-artifacts/artifacts"


@pytest.fixture
def db_url(sqlite_url: str) -> str:
    """What is refused never comes to a database."""
    return sqlite_url


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("runs/log-metric", {"key": "a", "value": "x", "timestamp": 1}, "value"),
        ("runs/log-metric", {"key": "a", "value": 1}, "timestamp"),
        ("runs/log-metric", {"key": "a", "value": 1, "timestamp": -1}, "time"),
        ("runs/log-metric", {"key": "a", "value": 1, "timestamp": 2**63}, "timestamp"),
        ("runs/log-metric", {"key": "a", "value": 1, "timestamp": 1, "step": 2**60}, "step"),
        ("runs/log-metric", {"key": "", "value": 1, "timestamp": 1}, "key"),
        ("runs/log-metric", {"key": "../a", "value": 1, "timestamp": 1}, "no plain path"),
        ("runs/log-metric", {"key": "a\u0000", "value": 1, "timestamp": 1}, "letters"),
        ("runs/log-metric", {"key": "x" * 251, "value": 1, "timestamp": 1}, "251 characters"),
        ("runs/log-parameter", {"key": "a|b", "value": "1"}, "letters"),
        ("runs/set-tag", {"key": "/a", "value": "1"}, "no plain path"),
        ("runs/log-batch", {"params": [{"key": "a", "value": "1"}, {"key": "a", "value": "2"}]}, "two values"),
        ("runs/log-batch", {"metrics": [{"key": "a", "value": 1, "timestamp": 1}] * 1001}, "1,001 metrics"),
        ("runs/log-batch", {"params": [{"key": f"p{n}", "value": "1"} for n in range(101)]}, "101 parameters"),
        ("runs/log-batch", {"metrics": {"a": 1}}, "metrics"),
        ("runs/update", {"status": "DONE"}, "no status"),
        ("runs/log-model", {"model_json": "{"}, "JSON"),
        ("runs/log-inputs", {"datasets": [{"dataset": {"name": "x"}}]}, "digest"),
    ],
)
async def test_a_field_that_cannot_be_is_named(door: Any, path: str, body: dict[str, Any], said: str) -> None:
    ask = door.of("alice")
    run = await new_run(ask, await new_experiment(ask))
    status, reply = await ask("POST", path, run_id=run, **body)
    assert (status, reply["error_code"]) == (400, "INVALID_PARAMETER_VALUE"), reply
    assert said in reply["message"]
    _, reply = await ask("GET", "runs/get", run_id=run)
    assert reply["run"]["data"].keys() <= {"tags"}  # nothing of it was kept


async def test_a_body_beyond_all_measure_is_refused_before_it_is_read(door: Any) -> None:
    ask = door.of("alice")
    run = await new_run(ask, await new_experiment(ask))
    metrics = [{"key": "a", "value": 1, "timestamp": 1}] * 100_000  # of a million, as much as a body may have
    status, reply = await ask("POST", "runs/log-batch", run_id=run, metrics=metrics)
    assert (status, reply["error_code"]) == (413, "INVALID_PARAMETER_VALUE")
    status, reply = await ask("POST", "runs/log-parameter", run_id=run, key="big", value="x" * 10_000_000)
    assert (status, reply["error_code"]) == (413, "INVALID_PARAMETER_VALUE")
    status, _ = await ask("POST", "runs/log-parameter", run_id=run, key="big", value="x" * 1_000_000)
    assert status == 200
    _, reply = await ask("GET", "runs/get", run_id=run)
    assert len(reply["run"]["data"]["params"][0]["value"]) == 8000  # cut, as MLflow does


async def test_a_run_has_an_end_to_what_it_keeps(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "MOST_NAMES", 5)
    monkeypatch.setattr(runs, "VALUES_CHARS", 1000)
    ask = door.of("alice")
    run = await new_run(ask, await new_experiment(ask))
    metrics = [{"key": f"m{n}", "value": 1, "timestamp": 1} for n in range(6)]
    status, reply = await ask("POST", "runs/log-batch", run_id=run, metrics=metrics)
    assert (status, "more than 5 metrics" in reply["message"]) == (400, True)
    status, reply = await ask("POST", "runs/set-tag", run_id=run, key="t", value="x" * 2000)
    assert (status, "characters" in reply["message"]) == (400, True)


async def test_a_parameter_keeps_its_first_value(door: Any) -> None:
    ask = door.of("alice")
    run = await new_run(ask, await new_experiment(ask))
    for value, status in (("1", 200), ("1", 200), ("2", 400)):
        assert (await ask("POST", "runs/log-parameter", run_id=run, key="lr", value=value))[0] == status


async def test_a_page_of_runs_ends_by_its_bytes(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PAGE_BYTES", 20_000)
    ask = door.of("alice")
    number = await new_experiment(ask)
    made = [await new_run(ask, number, f"r{place}", place, note="x" * 7000) for place in range(5)]
    found, token = [], ""
    while True:
        _, reply = await ask("POST", "runs/search", experiment_ids=[number], page_token=token)
        found.append([one["info"]["run_id"] for one in reply["runs"]])
        token = reply.get("next_page_token", "")
        if not token:
            break
    assert [len(page) for page in found] == [2, 2, 1]
    assert [one for page in found for one in page] == made[::-1]


@pytest.mark.parametrize("name", ["", "13", "a:b", "x" * 300, "../up", "\x00"])
async def test_a_name_that_no_project_can_have_is_refused(door: Any, name: str) -> None:
    status, reply = await door.of("alice")("POST", "experiments/create", name=name)
    assert status in {400, 404}, reply
    assert reply["error_code"] in {"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"}


@pytest.mark.parametrize("place", ["s3://mallory/x", "file:///etc", "/etc", "http://10.0.0.1/x"])
async def test_nobody_says_where_files_go(door: Any, place: str) -> None:
    status, reply = await door.of("alice")("POST", "experiments/create", name="a", artifact_location=place)
    assert (status, reply["error_code"]) == (400, "INVALID_PARAMETER_VALUE")


@pytest.mark.parametrize(
    "path",
    ["..%2f..%2fx", "a/%2e%2e/%2e%2e/x", "a/../../x", "%2fetc/passwd", "a%00b", "a//b", "a%5cb", "x%0ay"],
)
async def test_a_path_that_leads_out_is_no_path(door: Any, path: str) -> None:
    ask = door.of("alice")
    run = await new_run(ask, await new_experiment(ask))
    url = f"{door.base}{FILES}/0/{run}/artifacts/{path}"
    reply = await ask.http.put(url, content=b"x")
    assert reply.status_code in {400, 404, 405}, reply.text
    folder = door.world.settings.artifacts_dir
    assert not [one for one in folder.rglob("*") if one.is_file()] if folder.exists() else True


async def test_a_file_is_no_folder_and_a_folder_no_file(door: Any) -> None:
    ask = door.of("alice")
    run = await new_run(ask, await new_experiment(ask))
    base = f"{FILES}/0/{run}/artifacts"
    assert (await ask.http.put(f"{base}/a", content=b"1")).status_code == 200
    assert (await ask.http.put(f"{base}/a/b", content=b"1")).status_code == 400
    assert (await ask.http.put(f"{base}/c/d", content=b"1")).status_code == 200
    assert (await ask.http.put(f"{base}/c", content=b"1")).status_code == 400
    assert (await ask.http.put(f"{base}/a", content=b"22")).status_code == 200
    assert (await ask.http.get(f"{base}/a")).content == b"22"


async def test_files_count_towards_the_quota_of_their_owner(door: Any) -> None:
    from detlab_hub.store.queries.storage import usage
    from detlab_hub.store.tables import StorageQuotaRow

    ask = door.of("alice")
    run = await new_run(ask, await new_experiment(ask))
    base = f"{FILES}/0/{run}/artifacts"
    door.world.store.write_sync(lambda s: s.add(StorageQuotaRow(kind="user", name="alice", size=10)))
    assert (await ask.http.put(f"{base}/a", content=b"1234567")).status_code == 200
    reply = await ask.http.put(f"{base}/b", content=b"1234567")
    assert (reply.status_code, reply.json()["error_code"]) == (400, "RESOURCE_EXHAUSTED")
    assert door.world.store.write_sync(lambda s: usage.of_user(s, "alice").used) == 7
    assert (await ask.http.delete(f"{base}/a")).status_code == 200
    assert (await ask.http.put(f"{base}/b", content=b"1234567")).status_code == 200


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b"\xff", b'"x"', b"[" * 10_000])
async def test_a_body_that_is_no_message_is_refused(door: Any, body: bytes) -> None:
    reply = await door.of("alice").http.post("mlflow/api/2.0/mlflow/runs/log-metric", content=body)
    assert (reply.status_code, reply.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
