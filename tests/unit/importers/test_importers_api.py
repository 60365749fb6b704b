"""The client of the tracking protocol against a server that does what it likes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from detlab.client.transport.calls import Retries
from detlab.errors import ClusterUnreachable
from detlab.importers.foreign import ForeignExperiment, ForeignFile, ForeignRun
from detlab.importers.left_out import LeftOut
from detlab.importers.mlflow.server import MlflowServer
from detlab.importers.threads import work_off
from detlab.importers.tracking_api import TrackingApi, TrackingRefusal

Answer = Callable[[str, str, dict[str, Any], Any], tuple[int, bytes, dict[str, str]]]


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """Serve by a function of verb, path, fields and headers; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            parts = urlsplit(self.path)
            size = int(self.headers.get("Content-Length") or 0)
            fields = json.loads(self.rfile.read(size)) if size else {k: v[0] for k, v in parse_qs(parts.query).items()}
            status, body, headers = answer(self.command, parts.path, fields, self.headers)
            self.send_response(status)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key, value)
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = _do  # noqa: N815  (names of the library)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/base"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def opened(url: str, **more: Any) -> Iterator[MlflowServer]:
    source = MlflowServer(url, more.pop("left_out", LeftOut()), file_bytes=1000, **{"others_token": None, **more})
    source.api._retries = Retries(first=0.001, cap=0.002, attempts=3, refused=1)
    try:
        yield source
    finally:
        source.close()


def reply(value: Any, status: int = 200) -> tuple[int, bytes, dict[str, str]]:
    return status, json.dumps(value).encode(), {"Content-Type": "application/json"}


def test_pages_are_followed_to_their_end_and_deleted_ones_counted() -> None:
    seen = []

    def answer(verb: str, path: str, fields: dict[str, Any], headers: Any) -> Any:
        seen.append((verb, path, fields.get("page_token")))
        if fields.get("page_token") == "2":
            return reply({"experiments": [{"experiment_id": "2", "name": "b", "lifecycle_stage": "deleted"}]})
        return reply({"experiments": [{"experiment_id": "1", "name": "a"}, "odd", {}], "next_page_token": "2"})

    left_out = LeftOut()
    with serving(answer) as url, opened(f"{url}/#/experiments/7", left_out=left_out) as source:
        assert [one.name for one in source.experiments()] == ["a"]
    assert seen == [("POST", "/base/api/2.0/mlflow/experiments/search", token) for token in (None, "2")]
    assert [(why, one.count) for why, one in left_out.items()] == [("deleted experiments", 1)]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>login</html>", "none of MLflow's"),
        (b"[1]", "none of MLflow's"),
        (b'{"experiments": 7}', "none of MLflow's"),
        (b"[" * 100_000, "none of MLflow's"),
        (b'{"experiments": [], "next_page_token": "1"}', "none of MLflow's"),
    ],
)
def test_answers_that_are_none_end_the_import_with_a_word(body: bytes, said: str) -> None:
    with (
        serving(lambda *_: (200, body, {})) as url,
        opened(url) as source,
        pytest.raises(TrackingRefusal, match=said),
    ):
        source.experiments()


def test_a_redirect_is_not_followed_and_large_replies_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(verb: str, path: str, fields: Any, headers: Any) -> Any:
        asked.append(path)
        return 302, b"", {"Location": "/login"}

    with serving(answer) as url, opened(url) as source, pytest.raises(TrackingRefusal, match="leads elsewhere"):
        source.experiments()
    assert len(asked) == 1
    monkeypatch.setattr("detlab.importers.tracking_api.MOST_BYTES", 1000)
    with (
        serving(lambda *_: reply({"experiments": ["x" * 5000]})) as url,
        opened(url) as source,
        pytest.raises(TrackingRefusal, match="has over"),
    ):
        source.experiments()


def test_what_passes_is_asked_again_and_what_does_not_is_said() -> None:
    answers = [(503, b"", {"Retry-After": "0"}), (429, b"{}", {}), reply({"experiments": []})]
    with serving(lambda *_: answers.pop(0)) as url, opened(url) as source:
        assert source.experiments() == []
    refusal = {"error_code": "PERMISSION_DENIED", "message": "no"}
    with serving(lambda *_: reply(refusal, 403)) as url, opened(url) as source:
        with pytest.raises(TrackingRefusal, match=r"127\.0\.0\.1.* answered: no") as error:
            source.experiments()
        assert (error.value.error_code, error.value.ends("another"), error.value.ends(url)) == (
            "PERMISSION_DENIED",
            True,
            False,
        )
    with opened("http://127.0.0.1:9") as source, pytest.raises(ClusterUnreachable, match="run the same command again"):
        source.experiments()


@pytest.mark.parametrize(
    ("variables", "address", "sent"),
    [
        ({}, "", None),
        ({"MLFLOW_TRACKING_TOKEN": "t"}, "", "Bearer t"),
        (
            {"MLFLOW_TRACKING_TOKEN": "t", "MLFLOW_TRACKING_USERNAME": "u", "MLFLOW_TRACKING_PASSWORD": "p"},
            "",
            "Basic dTpw",
        ),
        ({"MLFLOW_TRACKING_TOKEN": "t", "MLFLOW_TRACKING_URI": "https://hub/services/detlab/mlflow"}, "", None),
        ({"MLFLOW_TRACKING_TOKEN": "t", "MLFLOW_TRACKING_URI": "SAME"}, "", "Bearer t"),
        ({"MLFLOW_TRACKING_TOKEN": "the-cluster's"}, "", None),
        ({}, "u:p@", "Basic dTpw"),
    ],
)
def test_a_token_goes_to_the_server_that_it_is_for(
    variables: dict[str, str], address: str, sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []

    def answer(verb: str, path: str, fields: Any, headers: Any) -> Any:
        found.append(headers.get("Authorization"))
        return reply({})

    with serving(answer) as url:
        for name in ("TOKEN", "USERNAME", "PASSWORD", "URI"):
            monkeypatch.delenv(f"MLFLOW_TRACKING_{name}", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, url if value == "SAME" else value)
        with opened(url.replace("://", f"://{address}"), others_token="the-cluster's") as source:
            source.experiments()
            assert source.label == url
    assert found == [sent]


RUN = ForeignRun("r1", "1", metrics=("loss",), place="mlflow-artifacts:/1/r1/artifacts")


def test_files_that_a_server_lists_outside_of_the_folder_are_left_out() -> None:
    def answer(verb: str, path: str, fields: dict[str, Any], headers: Any) -> Any:
        if path.endswith("artifacts/list"):
            inside = [{"path": "sub/a", "file_size": "3"}, {"path": "../x"}, {"path": "sub", "is_dir": True}]
            items = inside if fields.get("path") else [{"path": "sub", "is_dir": True}, {"path": "b c", "file_size": 1}]
            return reply({"files": items})
        return 200, path.encode(), {}

    left_out = LeftOut()
    with serving(answer) as url, opened(url, left_out=left_out) as source:
        files = list(source.files(RUN))
        assert [(one.path, one.size) for one in files] == [("b c", 1), ("sub/a", 3)]
        with source.open(files[0]) as (stream, size):
            data = stream.read()
            assert (data, size) == (b"/base/api/2.0/mlflow-artifacts/artifacts/1/r1/artifacts/b%20c", len(data))
    assert {why: one.count for why, one in left_out.items()} == {"files outside of the folder that was listed": 2}


def test_a_file_larger_than_allowed_is_not_read_to_its_end() -> None:
    file = ForeignFile("a", None, ("get-artifact", {}))
    with serving(lambda *_: (200, b"x" * 10_000_000, {})) as url, opened(url) as source, source.open(file) as (_, size):
        assert 1000 < size < 9_000_000


def test_values_are_numbers_whatever_a_server_says() -> None:
    metrics = [
        {"key": "loss", "value": "NaN", "timestamp": "5", "step": 1},
        {"key": "loss", "value": 1.7976931348623157e308, "timestamp": 5},
        {"key": "loss", "value": None, "timestamp": [], "step": 2**70},
    ]
    with serving(lambda *_: reply({"metrics": metrics})) as url, opened(url) as source:
        found = [(repr(one.value), one.time_ms, one.step) for one in source.points(RUN)]
    assert found == [("nan", 5, 1), ("inf", 5, 0), ("nan", 0, 0)]


def test_a_server_of_mlflow_2_has_no_logged_models() -> None:
    with serving(lambda *_: (404, b"<html>", {})) as url, opened(url) as source:
        assert list(source.models(ForeignExperiment("1", "a"))) == []


# --- the threads


def test_jobs_are_worked_off_and_the_first_error_stops_all() -> None:
    done: list[int] = []
    work_off(range(100), done.append, 4, lambda: None)
    assert sorted(done) == list(range(100))
    stopped, taken = threading.Event(), []

    def work(number: int) -> None:
        if number == 5:
            raise ValueError(number)

    def jobs() -> Iterator[int]:
        for number in range(10_000):
            taken.append(number)
            yield number

    with pytest.raises(ValueError, match="5"):
        work_off(jobs(), work, 4, stopped.set)
    assert stopped.is_set()
    assert len(taken) < 1000


def test_a_limit_per_day_is_not_waited_for() -> None:
    refusal = {"error_code": "REQUEST_LIMIT_EXCEEDED", "message": "too much today"}
    answer = 429, json.dumps(refusal).encode(), {"Retry-After": "40000"}
    with serving(lambda *_: answer) as url, opened(url) as source:
        with pytest.raises(TrackingRefusal, match="too much today") as error:
            source.experiments()
        assert error.value.ends(url)


def test_a_stopped_connection_waits_no_longer() -> None:
    with serving(lambda *_: (503, b"", {"Retry-After": "50"})) as url, opened(url) as source:
        source.api._retries = Retries(first=50, cap=100, attempts=3)
        threading.Timer(0.2, source.api.stopped.set).start()
        with pytest.raises(Exception, match=r"^$"):
            source.experiments()


def test_an_api_without_a_prefix_and_one_with() -> None:
    seen = []

    def answer(verb: str, path: str, fields: Any, headers: Any) -> Any:
        seen.append(path)
        return reply({})

    import httpx

    with serving(answer) as url, httpx.Client(base_url=f"{url}/", trust_env=False) as http:
        TrackingApi(http, "x", prefix="mlflow/").get("runs/get", run_id="1", path="p")
    assert seen == ["/base/mlflow/api/2.0/mlflow/runs/get"]
