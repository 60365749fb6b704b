"""A tracking server of MLflow, read by its REST API; MLflow itself is not needed."""

from __future__ import annotations

import math
import os
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote, urlsplit, urlunsplit

from detlab.client.transport.calls import Retries
from detlab.client.transport.discovery import ClusterAddress
from detlab.client.transport.version import USER_AGENT
from detlab.errors import DetlabError
from detlab.importers.foreign import (
    NAME_TAG,
    ForeignExperiment,
    ForeignFile,
    ForeignModel,
    ForeignPoint,
    ForeignRegisteredModel,
    ForeignRun,
    ForeignVersion,
)
from detlab.importers.left_out import LeftOut
from detlab.importers.mlflow.messages import (
    entries,
    is_prompt,
    number,
    text,
    version_source,
    whole,
)
from detlab.importers.tracking_api import ARTIFACTS, TrackingApi, TrackingRefusal

if TYPE_CHECKING:
    import httpx

PROXIED = "mlflow-artifacts:/"
HISTORY_POINTS = 25_000
"""Values that are asked for at a time; servers before MLflow 3 send all."""
RUNS, EXPERIMENTS, MODELS = 1000, 1000, 100
MOST_FILES, MOST_DEPTH = 20_000, 30
"""Files of one run, and folders within each other."""
SECONDS = 120.0
_FIRST = ["attributes.start_time ASC"]


class MlflowServer:
    """A tracking server.

    Args:
        url: Its address, without a page of it.
        left_out: Takes what is not read.
        http: Instead of a connection of its own.
        file_bytes: Of a file, at most.
    """

    kind = "mlflow"

    def __init__(
        self,
        url: str,
        left_out: LeftOut,
        *,
        http: httpx.Client | None = None,
        file_bytes: int,
        others_token: str | None = None,
    ) -> None:
        base, user, password = _parts(url)
        self.label = base.rstrip("/")
        self._http = http or _connection(base, user, password, others_token)
        self.api = TrackingApi(self._http, self.label, retries=Retries(attempts=5))
        self._left_out = left_out
        self._file_bytes = file_bytes

    def stop(self) -> None:
        """Have threads that wait for the server end."""
        self.api.stopped.set()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    # --- experiments and runs

    def experiments(self) -> list[ForeignExperiment]:
        """Return the experiments; deleted ones are counted."""
        found, seen = [], set()
        for one in self.api.pages(
            "POST", "experiments/search", "experiments", max_results=EXPERIMENTS, view_type="ALL"
        ):
            known = text(one, "experiment_id")
            if text(one, "lifecycle_stage") == "deleted":
                self._left_out.add("deleted experiments", text(one, "name"))
            elif known and known not in seen:
                seen.add(known)
                found.append(ForeignExperiment(known, text(one, "name") or known, entries(one, "tags")))
        return found

    def runs(self, experiment: ForeignExperiment) -> Iterator[ForeignRun]:
        """Yield runs, those that began first before others; deleted ones are counted."""
        asked = {"experiment_ids": [experiment.id], "max_results": RUNS, "order_by": _FIRST, "run_view_type": "ALL"}
        for one in self.api.pages("POST", "runs/search", "runs", **asked):
            info = one.get("info")
            if not isinstance(info, dict) or not text(info, "run_id"):
                continue
            if text(info, "lifecycle_stage") == "deleted":
                self._left_out.add("deleted runs", text(info, "run_name") or text(info, "run_id"))
                continue
            yield _run(experiment, info, one)

    def points(self, run: ForeignRun) -> Iterator[ForeignPoint]:
        """Yield all values, one metric after the other."""
        for key in run.metrics:
            asked = {"run_id": run.id, "metric_key": key, "max_results": HISTORY_POINTS}
            for one in self.api.pages("GET", "metrics/get-history", "metrics", **asked):
                yield _point(key, one)

    # --- files

    def files(self, run: ForeignRun) -> Iterator[ForeignFile]:
        """Yield the files of a run, folder by folder."""
        root = str(run.place or "")

        def listed(folder: str) -> Iterator[dict[str, Any]]:
            more = {"path": folder} if folder else {}
            return self.api.pages("GET", "artifacts/list", "files", run_id=run.id, **more)

        for path, size in self._walk(listed, f"run {run.id}"):
            if root.startswith(PROXIED):
                yield ForeignFile(path, size, (_proxied(root, path), {}))
            else:
                yield ForeignFile(path, size, ("get-artifact", {"run_id": run.id, "run_uuid": run.id, "path": path}))

    def _walk(self, listed: Any, what: str) -> Iterator[tuple[str, int | None]]:
        pending, seen = [""], 0
        while pending:
            folder = pending.pop()
            try:
                items = list(listed(folder))
            except TrackingRefusal as refusal:
                if refusal.ends(self.label):
                    raise
                self._left_out.add("folders of files that the server does not list", f"{what}: {refusal.message}")
                continue
            for one in items:
                path, size = text(one, "path"), one.get("file_size")
                if not path.startswith(f"{folder}/" if folder else "") or path == folder:
                    self._left_out.add("files outside of the folder that was listed", f"{what}: {path}")
                    continue
                seen += 1
                if seen > MOST_FILES or path.count("/") >= MOST_DEPTH:
                    self._left_out.add(f"files over {MOST_FILES:,} of a run, or {MOST_DEPTH} folders deep", what)
                elif one.get("is_dir"):
                    pending.append(path)
                else:
                    yield path, None if size is None else whole(size)

    @contextmanager
    def open(self, file: ForeignFile) -> Iterator[tuple[BinaryIO, int]]:
        """Download a file."""
        path, params = file.place
        with self.api.fetched(path, params, self._file_bytes) as (stream, size):
            yield stream, size

    # --- models

    def models(self, experiment: ForeignExperiment) -> Iterator[ForeignModel]:
        """Yield logged models; servers of MLflow 2 have none."""
        asked = {"experiment_ids": [experiment.id], "max_results": MODELS}
        try:
            for one in self.api.pages("POST", "logged-models/search", "models", **asked):
                if (model := _model(one)) is not None:
                    yield model
        except TrackingRefusal as refusal:
            if refusal.status not in {400, 404, 405, 501}:
                raise

    def model_files(self, model: ForeignModel) -> Iterator[ForeignFile]:
        """Yield the files of a logged model."""
        root = str(model.place or "")

        def listed(folder: str) -> Iterator[dict[str, Any]]:
            more = {"artifact_directory_path": folder} if folder else {}
            if root.startswith(PROXIED):
                return self._in_proxy(root, folder)
            return self.api.pages(
                "GET", f"logged-models/{quote(model.id, safe='')}/artifacts/directories", "files", **more
            )

        way = f"ajax-api/2.0/mlflow/logged-models/{quote(model.id, safe='')}/artifacts/files"
        for path, size in self._walk(listed, f"model {model.id}"):
            if root.startswith(PROXIED):
                yield ForeignFile(path, size, (_proxied(root, path), {}))
            else:
                yield ForeignFile(path, size, (way, {"artifact_file_path": path}))

    def _in_proxy(self, root: str, folder: str) -> Iterator[dict[str, Any]]:
        """List a folder of the server's own store, which says base names."""
        where = f"{_store_path(root)}/{folder}".rstrip("/")
        reply = self.api.ask("GET", ARTIFACTS.rstrip("/"), params={"path": where})
        for one in reply.get("files") or []:
            if isinstance(one, dict):
                name = text(one, "path").rpartition("/")[2]
                yield {**one, "path": f"{folder}/{name}" if folder else name}

    def registered(self) -> Iterator[ForeignRegisteredModel]:
        """Yield the registered models with their versions; prompts are counted."""
        for one in self.api.pages("GET", "registered-models/search", "registered_models", max_results=MODELS):
            name, tags = text(one, "name"), entries(one, "tags")
            if not name:
                continue
            if is_prompt(tags):
                self._left_out.add("prompts of the registry", name)
                continue
            yield ForeignRegisteredModel(
                name,
                whole(one.get("creation_timestamp")),
                text(one, "description"),
                tags,
                self._versions(name, one.get("aliases")),
            )

    def _versions(self, name: str, aliases: Any) -> list[ForeignVersion]:
        by_version: dict[str, list[str]] = {}
        for one in aliases if isinstance(aliases, list) else []:
            if isinstance(one, dict):
                by_version.setdefault(text(one, "version"), []).append(text(one, "alias"))
        mark = '"' if "'" in name else "'"
        asked = {"filter": f"name = {mark}{name}{mark}", "max_results": 1000}
        found = [
            _version(one, by_version)
            for one in self.api.pages("GET", "model-versions/search", "model_versions", **asked)
            if text(one, "name") == name
        ]
        return sorted(found, key=lambda one: one.number)


def _run(experiment: ForeignExperiment, info: Mapping[str, Any], one: Mapping[str, Any]) -> ForeignRun:
    data = one.get("data") if isinstance(one.get("data"), dict) else {}
    inputs = one.get("inputs") if isinstance(one.get("inputs"), dict) else {}
    outputs = one.get("outputs") if isinstance(one.get("outputs"), dict) else {}
    assert isinstance(data, dict)
    assert isinstance(inputs, dict)
    assert isinstance(outputs, dict)
    newest = [
        [text(m, "key"), str(m.get("value")), m.get("timestamp"), m.get("step")]
        for m in data.get("metrics") or []
        if isinstance(m, dict)
    ]
    ended = info.get("end_time")
    return ForeignRun(
        id=text(info, "run_id"),
        experiment=experiment.id,
        name=text(info, "run_name") or entries(data, "tags").get(NAME_TAG, ""),
        user=text(info, "user_id"),
        status=text(info, "status") or "FINISHED",
        started_ms=whole(info.get("start_time")),
        ended_ms=whole(ended) if ended else None,
        params=entries(data, "params"),
        tags=entries(data, "tags"),
        metrics=tuple(dict.fromkeys(str(one[0]) for one in newest)),
        datasets=tuple(d for d in inputs.get("dataset_inputs") or [] if isinstance(d, dict)),
        models_in=tuple(text(m, "model_id") for m in inputs.get("model_inputs") or [] if isinstance(m, dict)),
        models_out=tuple(
            (text(m, "model_id"), whole(m.get("step")))
            for m in outputs.get("model_outputs") or []
            if isinstance(m, dict)
        ),
        state=sorted(newest, key=str),
        place=text(info, "artifact_uri"),
    )


def _point(key: str, one: Mapping[str, Any]) -> ForeignPoint:
    return ForeignPoint(key, finite(number(one.get("value"))), whole(one.get("timestamp")), whole(one.get("step")))


def finite(value: float) -> float:
    """Return a value as it was logged: MLflow's databases keep an infinite one as the greatest number that there is."""
    return math.copysign(math.inf, value) if abs(value) == sys.float_info.max else value


def _model(one: Mapping[str, Any]) -> ForeignModel | None:
    info, data = one.get("info"), one.get("data")
    if not isinstance(info, dict) or not text(info, "model_id"):
        return None
    run = text(info, "source_run_id")
    metrics = data.get("metrics") or [] if isinstance(data, dict) else []
    return ForeignModel(
        id=text(info, "model_id"),
        run=run,
        name=text(info, "name"),
        model_type=text(info, "model_type"),
        ready=text(info, "status") in {"LOGGED_MODEL_READY", "READY"},
        params=entries(data, "params") if isinstance(data, dict) else {},
        tags=entries(info, "tags"),
        metrics=tuple(
            _point(text(m, "key"), m) for m in metrics if isinstance(m, dict) and text(m, "run_id") in {"", run}
        ),
        place=text(info, "artifact_uri"),
    )


def _version(one: Mapping[str, Any], aliases: Mapping[str, list[str]]) -> ForeignVersion:
    known = text(one, "version")
    labels = list(aliases.get(known, []))
    stage = text(one, "current_stage").lower()
    if stage in {"staging", "production", "archived"} and stage not in labels:
        labels.append(stage)
    source = text(one, "source")
    model, run, folder = version_source(source, text(one, "run_id"), text(one, "model_id"))
    return ForeignVersion(
        number=whole(known),
        created_ms=whole(one.get("creation_timestamp")),
        model=model,
        run=run,
        folder=folder,
        source=source,
        description=text(one, "description"),
        tags=entries(one, "tags"),
        labels=tuple(labels),
    )


def _store_path(root: str) -> str:
    parts = urlsplit(root)
    return parts.path.strip("/")


def _proxied(root: str, path: str) -> str:
    return ARTIFACTS + quote(f"{_store_path(root)}/{path}")


# --- the connection


def _parts(url: str) -> tuple[str, str, str]:
    """Return the address without a page of it, and the user and password that stand in it."""
    parts = urlsplit(url.partition("#")[0])
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise DetlabError(
            f"{url[:200]!r} is no address of a server", hint="det import mlflow https://mlflow.example.org"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    where = host if parts.port is None else f"{host}:{parts.port}"
    base = urlunsplit((parts.scheme, where, parts.path.rstrip("/") + "/", "", ""))
    return base, parts.username or "", parts.password or ""


def _connection(base: str, user: str, password: str, others_token: str | None) -> httpx.Client:
    import httpx

    headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
    auth: tuple[str, str] | None = (user, password) if user else None
    if auth is None and _meant(base):
        named = os.environ.get("MLFLOW_TRACKING_USERNAME", "")
        token = os.environ.get("MLFLOW_TRACKING_TOKEN", "")
        if named:
            auth = (named, os.environ.get("MLFLOW_TRACKING_PASSWORD", ""))
        elif token and token != others_token:
            headers["Authorization"] = f"Bearer {token}"
    verify: bool | ssl.SSLContext = True
    if (file := os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH")) and base.startswith("https:"):
        verify = ssl.create_default_context(cafile=file)
    address = ClusterAddress(base, None, "the address of the import")
    return httpx.Client(
        base_url=base,
        headers=headers,
        auth=auth,
        verify=verify,
        trust_env=address.proxied,
        timeout=httpx.Timeout(SECONDS, connect=10.0),
        follow_redirects=False,
        limits=httpx.Limits(max_connections=32, max_keepalive_connections=32),
    )


def _meant(base: str) -> bool:
    """Whether MLflow's variables with a token or a password are for this server: none of them goes to another one."""
    said = os.environ.get("MLFLOW_TRACKING_URI", "")
    return not said or said.rstrip("/") == base.rstrip("/")
