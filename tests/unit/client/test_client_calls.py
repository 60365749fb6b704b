"""Requests and replies without a network."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from detlab.client.operations import experiments as operations
from detlab.client.operations import tasks
from detlab.client.submission import config_mapping, config_text, set_key
from detlab.client.transport.calls import Call, Reply, Retries, error_of, field_of, model, page_of, run_flow
from detlab.errors import ApiError, AuthError, ConfigError, Conflict, Forbidden, NotFound, Unavailable, master_said
from detlab.schemas.wire import CreateExperiment, TrialView, UserView


def test_bodies_are_strict_json() -> None:
    body, kind = Call("POST", "x", json=CreateExperiment(config={"a": math.nan, "b": [math.inf]})).body()
    assert kind == "application/json"
    assert body is not None
    sent = json.loads(body, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert sent["config"] == {"a": "NaN", "b": ["Infinity"]}


def test_parameters_that_are_not_set_are_not_sent() -> None:
    assert Call("GET", "x", params={"a": None, "b": 0, "c": "ü&="}).query() == {"b": "0", "c": "ü&="}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, b'{"code": "auth.denied", "message": "m"}', AuthError),
        (403, b'{"code": "auth.forbidden", "message": "m"}', Forbidden),
        (404, b'{"code": "not_found", "message": "m"}', NotFound),
        (404, b"<html>not found</html>", NotFound),
        (409, b'{"code": "conflict", "message": "m"}', Conflict),
        (422, b'{"code": "config.invalid", "message": "m", "problems": []}', ConfigError),
        (422, b'{"code": "request.invalid", "message": "m"}', ApiError),
        (500, b'{"code": "internal", "message": "m"}', ApiError),
        (500, b"[]", ApiError),
        (502, b"<html>", Unavailable),
        (503, b"", Unavailable),
    ],
)
def test_errors_become_exceptions(status: int, body: bytes, expected: type[Exception]) -> None:
    error = error_of(Reply(status, body))
    assert type(error) is expected
    assert "<html" not in str(error)


def test_a_redirect_is_a_refused_token() -> None:
    error = error_of(Reply(302, b"", "http://h/hub/login"))
    assert isinstance(error, AuthError)
    assert "http://h/hub/login" in error.message


def test_the_hub_that_answers_in_detlabs_stead_is_not_a_refused_token() -> None:
    """Its proxy, started anew, sends it what is detlab's: a live view said the token was refused, and gave up."""
    path = "services/detlab/api/v1/experiments/1/stream?after=103"
    for location in (f"/hub/{path}", f"https://h/base/hub/{path}"):
        reply = Reply(302, b"", location)
        assert reply.passing
        assert type(error_of(reply)) is Unavailable
    for location in (None, f"/hub/login?next=%2F{path}", "/hub/login?next=/api/v1/", f"https://h/{path}"):
        reply = Reply(302, b"", location)
        assert not reply.passing
        assert type(error_of(reply)) is AuthError


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{}", b"<html>", b'{"items": {}}', b'{"name": {}}'])
def test_replies_that_make_no_sense(body: bytes) -> None:
    for parse in (model(UserView), field_of("items", list[TrialView]), page_of(TrialView)):
        with pytest.raises(ApiError, match="is invalid"):
            parse(Reply(200, body))


def test_replies_of_a_newer_master_are_understood() -> None:
    assert model(UserView)(Reply(200, b'{"name": "a", "new": 1}')).name == "a"


def test_backing_off() -> None:
    policy = Retries(first=1, cap=4, attempts=4)
    for failures, bound in ((1, 1), (2, 2), (3, 4), (4, 4)):
        pause = policy.delay(failures)
        assert pause is not None
        assert bound / 2 <= pause <= bound
    assert policy.delay(5) is None
    assert policy.delay(2, refused=True) is not None
    assert policy.delay(3, refused=True) is None
    assert 2 <= policy.pause(10_000) <= 4


def test_overrides() -> None:
    config = {"searcher": {"max_trials": 16}, "name": "x"}
    set_key(config, "searcher.max_trials=4")
    set_key(config, "hyperparameters.lr=1e-3")
    set_key(config, "labels=[a, b]")
    set_key(config, "name=a=b")
    assert config == {
        "searcher": {"max_trials": 4},
        "hyperparameters": {"lr": 0.001},
        "labels": ["a", "b"],
        "name": "a=b",
    }
    for bad in ("x", "=1", "a..b=1", "name.x=1", "a=[1"):
        with pytest.raises(ConfigError):
            set_key(config, bad)


def test_configs_come_as_mapping_file_or_text(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("name: x\n")
    assert config_text({"a": 1}) == {"a": 1}
    assert config_text(file) == config_text(str(file)) == "name: x\n"
    assert config_text("name: y\n") == "name: y\n"
    assert config_mapping("# nothing\n") == {}
    with pytest.raises(ConfigError, match="no config at"):
        config_text(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError):
        config_mapping("a: 1\na: 2\n")
    with pytest.raises(ConfigError):
        config_mapping("- a\n- b\n")


def test_importing_the_client_is_light() -> None:
    code = "import sys, detlab.client; print([m for m in ('httpx', 'pydantic', 'torch', 'yaml') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_loads() -> None:
    import detlab.client as client

    for name in client._HOME_OF:
        assert getattr(client, name) is not None
    assert set(client._HOME_OF) <= set(dir(client))
    with pytest.raises(AttributeError):
        _ = client.nonsense


@pytest.mark.parametrize(
    ("body", "the_masters"),
    [
        (b'{"code": "not_found", "message": "there is no experiment 7", "hint": null, "problems": []}', True),
        (b'{"status": 404, "message": "Not Found"}', False),  # the Hub's API
        (b"<html><title>JupyterHub</title></html>", False),
        (b"404: Not Found", False),
        (b'["code", "message"]', False),
        (b'{"code": 404, "message": "numbers are no codes of ours"}', False),
        (b'{"code": "not_found"}', False),
        (b"\xff\xfe", False),
        (b"", False),
    ],
)
def test_an_error_is_the_masters_by_one_rule(body: bytes, the_masters: bool) -> None:
    assert (master_said(body) is not None) is the_masters


def test_the_last_lines_that_a_filter_lets_through_are_asked_for_until_there_are_so_many() -> None:
    """The master looks for about a second at a time: one short page was all of `logs(tail=…, search=…)`."""
    asked: list[dict[str, Any]] = []

    def send(call: Call) -> Any:
        params = dict(call.params or {})
        asked.append(params)
        top = params.get("before") or 100
        line = {"id": top - 10, "run": 1, "trial_id": 7, "time": 1.0, "text": f"line {top - 10}"}
        body = {"items": [line] if len(asked) != 2 else [], "next": None, "older": top - 10 if top > 50 else None}
        return call.parse(Reply(200, json.dumps(body).encode()))

    lines, following = run_flow(operations.trial_logs(7, tail=3, search="x"), send)
    assert [line.id for line in lines] == [60, 70, 90]
    assert following is None
    assert [(params["tail"], params.get("before")) for params in asked] == [(3, None), (2, 90), (2, 80), (1, 70)]
    asked.clear()
    assert len(run_flow(tasks.task_logs("notebook-1", tail=30), send)[0]) == 5
    assert asked[-1]["before"] == 50
