"""Where versions of artifacts come from and what was made with them, as a graph up to versions of models.

What the reader may not see is left out, and nothing behind it is drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from sqlalchemy.orm import Session

from detlab.errors import DetlabError
from detlab.schemas.wire.artifacts.artifacts import LOGGED, USED
from detlab.schemas.wire.registry import LineageGraph
from detlab_hub.core.rights import Right
from detlab_hub.services.artifacts.access import artifact_for, artifact_rights, reference_of, version_for
from detlab_hub.services.base.access import model_for, reference_to
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service
from detlab_hub.services.tracking.access import readable_runs, trial_of
from detlab_hub.services.views.graphs import LineageDrawing
from detlab_hub.store.queries.registry import artifacts
from detlab_hub.store.tables import (
    ArtifactLinkRow,
    ArtifactRow,
    ArtifactVersionRow,
    DeletedArtifactLinkRow,
    ExperimentRow,
    ModelRow,
    TrackedRunRow,
    VersionRow,
)

MOST_NODES = 200
"""Of a graph; what is beyond is not drawn."""
_MOST_LINKS = 100
"""Of one version or run."""


class ArtifactLineages(Service):
    """The lineage of artifacts."""

    async def graph(self, caller: Caller, name: str, version: str) -> LineageGraph:
        """Draw what a version was made of, by which runs, and what was made with it.

        Raises:
            NotFound: There is no such artifact or version for the caller.
        """

        def look(s: Session) -> LineageGraph:
            row = version_for(s, artifact_for(s, caller, name), version)
            drawn = LineageDrawing()
            tracer = _Tracer(s, caller, drawn)
            tracer.back(deque([row]))
            tracer.forth(deque([row]))
            return drawn.graph()

        return await self._context.look(caller.name, look)


def draw_used(s: Session, caller: Caller, drawn: LineageDrawing, node: str, run_id: str) -> None:
    """Draw the artifacts that a run has used, which is there as a node, and what these were made of."""
    tracer = _Tracer(s, caller, drawn)
    tracer.back(deque(tracer.versions_of(run_id, USED, node)))


class _Tracer:
    """Follows lineage in one direction at a time: what was made beside something is neither."""

    def __init__(self, s: Session, caller: Caller, drawn: LineageDrawing) -> None:
        self._s, self._caller, self._drawn = s, caller, drawn
        self._seen: set[tuple[str, int]] = set()
        self._gone: set[tuple[str, int, int]] = set()

    def back(self, waiting: deque[ArtifactVersionRow]) -> None:
        """Draw the runs that have made versions, what these have used, and so on."""
        for row in self._each(waiting, "back"):
            mine = self._version(row)
            for run_id, node in self._runs(row, LOGGED):
                self._drawn.edge(mine, node, "logged by")
                waiting += self.versions_of(run_id, USED, node)

    def forth(self, waiting: deque[ArtifactVersionRow]) -> None:
        """Draw the runs that have used versions, what these have made, and so on."""
        for row in self._each(waiting, "forth"):
            mine = self._version(row)
            for run_id, node in self._runs(row, USED):
                self._drawn.edge(node, mine, "uses")
                self._models(run_id, node)
                waiting += self.versions_of(run_id, LOGGED, node)

    def versions_of(self, run_id: str, role: str, node: str) -> list[ArtifactVersionRow]:
        """Draw the versions that a run has made, or used; return them."""
        found = []
        for link in artifacts.links_of_run(self._s, run_id, _MOST_LINKS):
            row = self._s.get_one(ArtifactVersionRow, link.version_id)
            artifact = self._s.get_one(ArtifactRow, row.artifact_id)
            shown = artifact_rights(self._s, self._caller, [artifact])[artifact.id] >= Right.READ
            if link.role == role and shown and len(self._drawn.nodes) < MOST_NODES:
                self._edge(self._version(row), node, role)
                found.append(row)
        return found + self._deleted(run_id, role, node)

    def _deleted(self, run_id: str, role: str, node: str) -> list[ArtifactVersionRow]:
        """Draw what a run has made, or used, and is deleted; return the versions that are behind it."""
        found: list[ArtifactVersionRow] = []
        for gone in artifacts.deleted_of_run(self._s, run_id, _MOST_LINKS):
            row = ArtifactRow(id=gone.artifact_id, name=gone.name, owner=gone.owner, workspace_id=gone.workspace_id)
            shown = artifact_rights(self._s, self._caller, [row])[row.id] >= Right.READ
            if gone.role != role or not shown or len(self._drawn.nodes) >= MOST_NODES:
                continue
            named = f"{reference_of(self._caller, row)}:v{gone.version} (deleted)"
            mine = self._drawn.node("artifact", named, gone.kind)
            self._edge(mine, node, role)
            if (role, gone.artifact_id, gone.version) in self._gone:
                continue
            self._gone.add((role, gone.artifact_id, gone.version))
            other = LOGGED if role == USED else USED
            links = artifacts.deleted_of(self._s, gone.artifact_id, gone.version, _MOST_LINKS)
            for behind, run in self._shown_runs(links, other):
                self._edge(mine, run, other)
                if other == USED:
                    self._models(behind, run)
                found += self.versions_of(behind, role, run)
        return found

    def _edge(self, version: str, run: str, role: str) -> None:
        if role == USED:
            self._drawn.edge(run, version, "uses")
        else:
            self._drawn.edge(version, run, "logged by")

    def _each(self, waiting: deque[ArtifactVersionRow], way: str) -> Iterator[ArtifactVersionRow]:
        """Yield what waits, each once for a direction, while it grows and the graph has room."""
        while waiting and len(self._drawn.nodes) < MOST_NODES:
            row = waiting.popleft()
            if (way, row.id) not in self._seen:
                self._seen.add((way, row.id))
                yield row

    def _version(self, row: ArtifactVersionRow) -> str:
        artifact = self._s.get_one(ArtifactRow, row.artifact_id)
        return self._drawn.node("artifact", f"{reference_of(self._caller, artifact)}:v{row.version}", artifact.kind)

    def _runs(self, row: ArtifactVersionRow, role: str) -> list[tuple[str, str]]:
        return self._shown_runs(artifacts.links_of(self._s, [row.id], _MOST_LINKS), role)

    def _shown_runs(
        self, links: Sequence[ArtifactLinkRow | DeletedArtifactLinkRow], role: str
    ) -> list[tuple[str, str]]:
        wanted = [one for one in links if one.role == role]
        readable = readable_runs(self._s, self._caller, [one.run_id for one in wanted])
        return [
            (one.run_id, self._run(one))
            for one in wanted
            if one.run_id in readable and len(self._drawn.nodes) < MOST_NODES
        ]

    def _run(self, link: ArtifactLinkRow | DeletedArtifactLinkRow) -> str:
        number = trial_of(link.run_id)
        if number is None or link.experiment_id is None:
            run = self._s.get(TrackedRunRow, link.run_id)
            called = "" if run is None else run.name
            label = called if not called or called.startswith("run-") else f"run {called}"
            return self._drawn.node("run", link.run_id, f"id {link.run_id[:8]}", label=label)
        trial = self._drawn.node("trial", str(number))
        experiment = self._s.get(ExperimentRow, link.experiment_id)
        name = "" if experiment is None else experiment.name
        self._drawn.edge(trial, self._drawn.node("experiment", str(link.experiment_id), name), "of")
        return trial

    def _models(self, run_id: str, node: str) -> None:
        """Draw the versions of models that are checkpoints of a run, of those that the caller may read."""
        trial = trial_of(run_id)
        for row in artifacts.model_versions_of(self._s, run_id, trial, _MOST_LINKS):
            model = self._model(row)
            if model is None or len(self._drawn.nodes) >= MOST_NODES:
                continue
            named = f"{reference_to(self._caller, model)}@{row.version}"
            head = self._drawn.node("version", named, row.semver or "")
            saved = self._drawn.node("checkpoint", row.checkpoint_uuid)
            self._drawn.edge(head, saved, "is")
            self._drawn.edge(saved, node, "saved by" if trial is not None else "logged by")

    def _model(self, row: VersionRow) -> ModelRow | None:
        try:
            return model_for(self._s, self._caller, str(row.model_id))
        except DetlabError:
            return None
