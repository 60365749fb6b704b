"""One request to the fake master of `testbed.fake_master.api`: its token, its fault, its answer."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from detlab.schemas.taskwire import CodeFile, CodeList
from detlab.schemas.wire import API_PREFIX, SERVICE_PREFIX, LogLine, RemoveFiles, TrialState, Wire
from detlab.testing.bundles import files_digest, packed_digest
from testbed.fake_master.state import ApiFault, ErrorReply, MasterState

Route = tuple[str, str, Callable[..., None]]
"""(HTTP verb, regular expression of the path below `api/v1/`, what serves it)."""


class RequestHandler(BaseHTTPRequestHandler):
    """One request: the token, the fault, the route."""

    master: MasterState
    routes: list[Route]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (name of the base class)
        """Say nothing."""

    def do_GET(self) -> None:
        """Serve GET."""
        self._serve()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  (names of the base class)

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path).removeprefix(SERVICE_PREFIX).removeprefix(API_PREFIX)
        self.query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.master.changed:
            self.master.requests.append((self.command, path))
            self.master.changed.notify_all()
        self.fault = self._take_fault(path)
        if self.fault is not None and self.fault.kind in {"refuse", "unavailable", "html", "no_route"}:
            self._misbehave(self.fault.kind)
            return
        try:
            if not parts.path.startswith(SERVICE_PREFIX):
                raise ErrorReply(404, "http.404", "not the service")
            if self.headers.get("Authorization") != f"Bearer {self.master.token}":
                raise ErrorReply(401, "auth.denied", "no valid token came with the request")
            self._route(path)
        except ErrorReply as refusal:
            self._reply(refusal.status, refusal.view.model_dump_json().encode())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _take_fault(self, path: str) -> ApiFault | None:
        with self.master.changed:
            for fault in self.master.faults:
                if fault.method == self.command and re.match(fault.path, path):
                    self.master.faults.remove(fault)
                    return fault
        return None

    def _misbehave(self, kind: str) -> None:
        if kind == "refuse":
            self.close_connection = True
        elif kind == "unavailable":
            self._reply(503, b"Service Unavailable", "text/plain")
        elif kind == "no_route":
            self._reply(404, b"Not Found", "text/plain")
        else:
            self._reply(502, b"<html><title>Bad gateway</title></html>", "text/html")

    def _route(self, path: str) -> None:
        for method, pattern, serve in self.routes:
            match = re.fullmatch(pattern, path)
            if match and method == self.command:
                serve(self, *match.groups())
                return
        if self.command == "GET" and path in self.master.answers:
            self.tell(self.master.answers[path])
            return
        raise ErrorReply(404, "http.404", f"no route {self.command} {path}")

    def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        if self.fault is not None and self.fault.kind == "lose_reply":
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def tell(self, value: Any) -> None:
        """Reply with a model or with plain data that may hold models."""
        if isinstance(value, Wire):
            self._reply(200, value.model_dump_json().encode())
            return
        text = json.dumps(value, default=lambda item: item.model_dump(mode="json"))
        self._reply(200, text.encode())

    def send_bytes(self, body: bytes) -> None:
        """Reply with a file."""
        self._reply(200, body, "application/octet-stream")

    def stream(self, batches: Iterator[list[Any]]) -> None:
        """Send lines in chunks until the source ends or the fault says so."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        cut = self.fault.lines if self.fault is not None else None
        sent = 0
        for batch in batches:
            for item in batch:
                if cut is not None and sent >= cut:
                    half = item.model_dump_json().encode()[:20]
                    if self.fault is not None and self.fault.kind == "cut_mid_line":
                        self._chunk(half)
                    self.close_connection = True
                    return
                self._chunk(item.model_dump_json().encode() + b"\n")
                sent += 1
            if not batch:
                self._chunk(b"\n")
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    # --- routes -------------------------------------------------------------------------------------------

    def list_experiments(self) -> None:
        """GET experiments."""
        before = int(self.query.get("before", 10**9))
        found = sorted((v for v in self.master.experiments.values() if v.id < before), key=lambda v: -v.id)
        for key in ("state", "owner"):
            if key in self.query:
                found = [view for view in found if str(getattr(view, key)) == self.query[key]]
        which = self.query.get("archived", "no")
        found = [view for view in found if which == "any" or (which == "only") == (view.archived_at is not None)]
        if "name" in self.query:
            found = [view for view in found if self.query["name"] in view.name]
        self.page(found)

    def list_trials(self, number: str) -> None:
        """GET experiments/{id}/trials."""
        self.master.experiment(number)
        after = int(self.query.get("after", 0))
        trials = self.master.trials.values()
        self.page([view for view in trials if view.experiment_id == int(number) and view.id > after])

    def page(self, found: list[Any]) -> None:
        """Reply with the first of these, and where to go on."""
        limit = int(self.query.get("limit", 50))
        page = found[:limit]
        self.tell({"items": page, "next": page[-1].id if len(found) > limit else None})

    def page_of_lines(self, lines: Iterable[LogLine], **more: Any) -> None:
        """Reply with a page of lines or the last ones, of what the query asks for, and with what more there is."""
        after = int(self.query.get("after", 0))
        found = [line for line in lines if line.id > after]
        if "rank" in self.query:
            found = [line for line in found if line.rank == int(self.query["rank"])]
        if "node" in self.query:
            found = [line for line in found if line.node == self.query["node"]]
        if "search" in self.query:
            found = [line for line in found if self.query["search"] in line.text]
        if "tail" in self.query:
            tail = int(self.query["tail"])
            self.tell({"items": found[-tail:] if tail else [], "next": None, **more})
        else:
            self.page(found)

    def list_logs(self, number: str) -> None:
        """GET trials/{id}/logs."""
        self.master.trial(number)
        gone = self.master.removed.get(int(number))
        more = {} if gone is None else gone.model_dump()
        self.page_of_lines((line for line in self.master.logs if line.trial_id == int(number)), **more)

    def follow_experiment(self, number: str) -> None:
        """GET experiments/{id}/stream."""
        self.master.experiment(number)
        cursor = int(self.query.get("after", len(self.master.events)))
        self.stream(self.master.events_after(int(number), cursor))

    def follow_logs(self, number: str) -> None:
        """GET trials/{id}/logs/stream."""
        self.master.trial(number)
        self.stream(self.master.logs_after(int(number), int(self.query.get("after", 0))))

    def put_bundle(self, digest: str) -> None:
        """PUT bundles/{digest}.

        Raises:
            Refusal: The body does not match the digest.
        """
        if digest not in {packed_digest(self.body), files_digest(self.body)}:
            raise ErrorReply(422, "bundle.invalid", "the body is not what its digest says")
        self.master.bundles[digest] = self.body
        self.tell({"digest": digest, "created": True})

    def head_bundle(self, digest: str) -> None:
        """HEAD bundles/{digest}."""
        self._reply(200 if digest in self.master.bundles else 404, b"")

    def get_code(self, number: str) -> None:
        """GET experiments/{id}/bundle.

        Raises:
            Refusal: The experiment has no code.
        """
        digest = self.master.experiment(number).bundle
        if digest is None:
            raise ErrorReply(404, "not_found", f"experiment {number} has no code")
        self.send_bytes(self.master.bundles[digest])

    def list_code(self, number: str) -> None:
        """GET experiments/{id}/code."""
        digest = self.master.experiment(number).bundle
        items = []
        if digest is not None:
            with tarfile.open(fileobj=io.BytesIO(self.master.bundles[digest])) as archive:
                items = [CodeFile(path=one.name, size=one.size, digest="") for one in archive if one.isreg()]
        self.tell(CodeList(items=items))

    def get_file(self, number: str, digest: str) -> None:
        """GET checkpoints/{uuid}/files/{digest}."""
        self.master.checkpoint(number)
        if digest not in self.master.blobs:
            raise ErrorReply(404, "checkpoint.missing", f"the file {digest} of checkpoint {number} cannot be read")
        self.send_bytes(self.master.blobs[digest])

    def delete(self, number: str) -> None:
        """DELETE experiments/{id}.

        Raises:
            Refusal: The experiment has not ended.
        """
        if not self.master.experiment(number).state.terminal:
            raise ErrorReply(409, "conflict", f"experiment {number} has not ended", None)
        del self.master.experiments[int(number)]
        self.tell({"deleted": int(number)})

    def kill_trial(self, number: str) -> None:
        """POST trials/{id}/kill."""
        self.master.trial(number)
        self.master.update_trial(int(number), state=TrialState.CANCELED)
        self.tell(self.master.trial(number))

    def list_series(self, number: str) -> None:
        """Answer with the curves of a trial, of the wanted group and names if they are given."""
        group, names = self.query.get("group"), json.loads(self.query.get("name", "[]"))
        found = self.master.series.get(int(number), [])
        wanted = [one for one in found if group in (None, one.group) and (not names or one.name in names)]
        self.tell({"items": wanted})

    def list_checkpoints(self, kind: str, number: str) -> None:
        """GET experiments|trials/{id}/checkpoints."""
        key = "experiment_id" if kind == "experiments" else "trial_id"
        found = [item for item in self.master.checkpoints.values() if getattr(item, key) == int(number)]
        self.tell({"items": [self.master.with_metric(item, self.query.get("metric")) for item in found]})

    def remove_files(self, number: str) -> None:
        """POST checkpoints/{uuid}/remove-files."""
        self.tell(self.master.delete_files(number, RemoveFiles.model_validate_json(self.body).globs))

    def list_values(self, number: str) -> None:
        """GET checkpoints/{uuid}/metrics."""
        group = self.query.get("group")
        found = self.master.values_of(self.master.checkpoint(number))
        self.tell({"items": [one for one in found if group in (None, one.group)]})
