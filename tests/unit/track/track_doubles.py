"""Folders of runs, and a master that keeps what it was sent as the real one does, without HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from detlab.client.transport.calls import Progress
from detlab.errors import ClusterUnreachable, DetlabError
from detlab.schemas.wire.artifacts.artifacts import ArtifactVersionView, LogVersion
from detlab.schemas.wire.runs import BeginRun, RunBegun, RunRecords, RunView
from detlab.track.folder import RunDescription, RunFolder
from detlab.track.this_run import Run


@dataclass
class KeptMaster:
    """Keeps records by run and process, each number once."""

    begun: list[BeginRun] = field(default_factory=list)
    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    answers: list[tuple[int, bytes] | DetlabError] = field(default_factory=list)
    """Of the next requests with records, instead of taking them."""
    away: DetlabError | None = None
    refuses: Callable[[dict[str, Any]], str] = lambda _: ""
    beats: int = 0
    artifacts: list[tuple[str, LogVersion, dict[str, bytes]]] = field(default_factory=list)
    uses: list[tuple[str, int, int]] = field(default_factory=list)
    artifact_answer: DetlabError | None = None
    """To each artifact, instead of taking it."""
    known: dict[str, RunView] = field(default_factory=dict)
    """Runs of before, by key."""
    media: dict[tuple[str, int, int], bytes] = field(default_factory=dict)
    no_media: DetlabError | None = None

    def begin(self, wanted: BeginRun) -> RunBegun:
        if self.away is not None:
            raise self.away
        self.begun.append(wanted)
        acked = self._acked(str(wanted.writer))
        return RunBegun(run=RunView(id="f" * 32, name=wanted.name), acked=acked)

    def find(self, key: str) -> RunView | None:
        if self.away is not None:
            raise self.away
        return self.known.get(key)

    def send(self, run_id: str, writer: str, body: bytes) -> tuple[int, bytes]:
        if self.away is not None:
            raise self.away
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, DetlabError):
                raise answer
            return answer
        RunRecords.model_validate_json(body)
        there = self.records.setdefault(writer, [])
        refused = []
        sent = json.loads(body)["records"]
        self.beats += not sent
        for record in sent:
            if record["seq"] <= self._acked(writer):
                continue
            if why := self.refuses(record):
                refused.append({"seq": record["seq"], "code": "no", "message": why})
            there.append(record)
        return 200, json.dumps({"acked": self._acked(writer), "refused": refused}).encode()

    def put_media(self, run_id: str, facts: Mapping[str, Any], path: Path) -> None:
        if self.away is not None:
            raise self.away
        if (refused := self.no_media) is not None:
            raise refused
        self.media[facts["key"], int(facts["step"]), int(facts["place"])] = path.read_bytes()

    def put(self, run_id: str, name: str, path: Path) -> None:
        if self.away is not None:
            raise self.away
        self.files[name] = path.read_bytes()

    def log_artifact(
        self, name: str, wanted: LogVersion, sources: Mapping[str, Path], progress: Progress
    ) -> ArtifactVersionView:
        if self.artifact_answer is not None:
            raise self.artifact_answer
        progress(1, 2)
        contents = {one.path: sources[one.digest].read_bytes() for one in wanted.files}
        self.artifacts.append((name, wanted, contents))
        return ArtifactVersionView(artifact_id=1, artifact=name, kind="dataset", version=len(self.artifacts))

    def use_artifact(self, run_id: str, artifact: int, version: int) -> ArtifactVersionView:
        self.uses.append((run_id, artifact, version))
        return ArtifactVersionView(artifact_id=artifact, artifact="used", kind="dataset", version=version)

    def close(self) -> None:
        pass

    def _acked(self, writer: str) -> int:
        return max((one["seq"] for one in self.records.get(writer, [])), default=0)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of a kind, of all processes."""
        return [one for those in self.records.values() for one in those if one["kind"] == kind]


GONE = ClusterUnreachable("no answer")


@pytest.fixture
def kept_master() -> KeptMaster:
    return KeptMaster()


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Run]:
    """Make runs without the process beside them: their records are on disk."""

    def make(key: str = "run", **settings: Any) -> Run:
        folder = RunFolder.made(tmp_path / "detlab-runs", RunDescription(key, started=1.0))
        return Run(folder, key, writer=folder.new_writer(), **{"mode": "offline", **settings})

    return make


def records_of(run: Run, kind: str = "") -> list[dict[str, Any]]:
    """Return the records of a run on disk."""
    assert run.folder is not None
    lines = [
        json.loads(line)
        for path in sorted(run.folder.path.glob("*/metrics.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return [one for one in lines if kind in {"", one["kind"]}]
