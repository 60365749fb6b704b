"""Models and their versions, asynchronous."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from detlab.client.aresources import AsyncCheckpoint
from detlab.client.facts import TrialMetrics
from detlab.client.operations import experiments, projects, registry
from detlab.client.ordering import OrderBy
from detlab.client.registry.facts import (
    EVALUATED_GROUPS,
    EVALUATION,
    ModelFacts,
    VersionFacts,
    check_used,
    evaluation_of,
    used_checkpoints,
)
from detlab.client.transport.calls import Progress
from detlab.client.transport.downloads import AnyMode
from detlab.client.transport.session import AsyncSession
from detlab.schemas.wire import GrantView
from detlab.schemas.wire.registry import Comparison, LabelMove, LineageGraph, ModelView, VersionView


class AsyncModelVersion(VersionFacts):
    """A version of a model, asynchronous: a checkpoint with its lineage."""

    def __init__(self, session: AsyncSession, view: VersionView) -> None:
        super().__init__(view)
        self._session = session

    async def reload(self) -> AsyncModelVersion:
        """Fetch the current state from the master; return itself."""
        self.view = await self._session.run(registry.get_version(self.model_id, self.model_version))
        return self

    async def get_checkpoint(self) -> AsyncCheckpoint:
        """Return the checkpoint that it is."""
        return AsyncCheckpoint(self._session, await self._session.run(experiments.checkpoint(self.checkpoint_uuid)))

    async def download(
        self, path: str | Path | None = None, mode: AnyMode = "auto", *, progress: Progress | None = None
    ) -> Path:
        """Download its files to a folder and return that folder; see `AsyncCheckpoint.download`."""
        return await (await self.get_checkpoint()).download(path, mode, progress=progress)

    async def get_lineage(self) -> LineageGraph:
        """Return where it comes from, as a graph."""
        return await self._session.run(registry.lineage(self.model_id, self.model_version))

    async def load(self, path: str | Path | None = None, *, allow_pickle: bool = False, **options: Any) -> Any:
        """Download it, verified, and load it; see `AsyncCheckpoint.load`.

        Of a folder with one model in a pickle, which is allowed, that model is returned, and not a dict with it.

        Args:
            path: Folder to keep the files in; None: a folder of this user's cache, so that they are fetched once.
            allow_pickle: Whether files may be unpickled, which can run any code of whoever wrote them.
            options: Of `AsyncCheckpoint.load`.
        """
        options = {"alone": True, **options}
        return await (await self.get_checkpoint()).load(path, allow_pickle=allow_pickle, **options)

    async def get_metrics(self, group: str | None = None) -> Iterable[TrialMetrics]:
        """Return what its trial reported at its step, by group; see `AsyncCheckpoint.get_metrics`."""
        return await (await self.get_checkpoint()).get_metrics(group)

    async def iter_metrics(self, group: str | None = None) -> AsyncIterator[TrialMetrics]:
        """Yield what its trial reported at its step, by group."""
        for one in await self.get_metrics(group):
            yield one

    async def set_name(self, name: str) -> None:
        """Give it a name."""
        await self._edit(name=name)

    async def set_comment(self, comment: str) -> None:
        """Describe it; an empty text removes the description."""
        await self._edit(comment=comment)

    async def set_notes(self, notes: str) -> None:
        """Replace its notes, Markdown of up to 100,000 characters."""
        await self._edit(notes=notes)

    async def set_semver(self, semver: str) -> None:
        """Give it a semantic version, which must be above those of the versions before it.

        Raises:
            ConfigError: It is not; the message names the last one.
        """
        await self._edit(semver=semver)

    async def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Set keys of its metadata; others stay."""
        await self._edit(set_metadata=dict(metadata))

    async def remove_metadata(self, keys: Iterable[str]) -> None:
        """Remove keys of its metadata."""
        await self._edit(remove_metadata=list(keys))

    async def add_evaluation(
        self, trial: int, *, name: str = "", groups: Collection[str] = EVALUATED_GROUPS
    ) -> dict[str, Any]:
        """Note in its metadata what a trial has found out about it: the last value of each metric, and its output.

        The trial must have used this version: started from its checkpoint (`searcher.source_checkpoint_uuid`), or told
        so by `report_task_using_model_version`. The same trial again replaces what was noted of it.

        Args:
            trial: The id of the trial.
            name: What it is called; default: the name of its experiment.
            groups: The groups of metrics to take.

        Returns:
            What is noted; `evaluations` has it.

        Raises:
            ConfigError: The trial has used something else, or has reported no metric in these groups.
        """
        view = await self._session.run(experiments.trial(trial))
        experiment = await self._session.run(experiments.experiment(view.experiment_id))
        used = {((experiment.config or {}).get("searcher") or {}).get("source_checkpoint_uuid")}
        if view.latest_checkpoint is not None:
            checkpoint = await self._session.run(experiments.checkpoint(view.latest_checkpoint))
            used |= used_checkpoints(checkpoint.metadata)
        check_used(self.view, trial, used)
        noted = evaluation_of(view, name or experiment.name, groups, time.time())
        await self.add_metadata({f"{EVALUATION}{trial}": noted})
        return noted

    async def delete(self, *, force: bool = False) -> None:
        """Delete it; its checkpoint stays, and its number is never given again.

        Raises:
            Conflict: Labels point at it, and it is not forced.
        """
        await self._session.run(registry.delete_version(self.model_id, self.model_version, force=force))

    async def _edit(self, **changes: Any) -> None:
        self.view = await self._session.run(registry.edit_version(self.model_id, self.model_version, **changes))


class AsyncModel(ModelFacts):
    """A registered model, asynchronous: a name under which versions are kept."""

    def __init__(self, session: AsyncSession, view: ModelView) -> None:
        super().__init__(view)
        self._session = session

    async def reload(self) -> AsyncModel:
        """Fetch the current state from the master; return itself."""
        self.view = await self._session.run(registry.get_model(self.model_id))
        return self

    # --- versions

    async def register_version(
        self,
        checkpoint_uuid: str | None = None,
        *,
        experiment_id: int | None = None,
        name: str = "",
        comment: str = "",
        notes: str = "",
        metadata: Mapping[str, Any] | None = None,
        semver: str | None = None,
        labels: Collection[str] = (),
        reason: str = "",
    ) -> AsyncModelVersion:
        """Make a checkpoint a version; one that is a version of this model already gives that version.

        Args:
            checkpoint_uuid: The checkpoint.
            experiment_id: Instead: the best checkpoint of this experiment.
            name: Of the version.
            comment: What it is.
            notes: Markdown.
            metadata: Any JSON.
            semver: A semantic version above those before it.
            labels: Moved to the new version in the same act.
            reason: Why they move.

        Raises:
            ConfigError: It names no checkpoint or two; or the semantic version is not above those before it.
            Conflict: The checkpoint is not whole.
        """
        fields = {"name": name, "comment": comment, "notes": notes, "metadata": dict(metadata or {}), "semver": semver}
        made = await self._session.run(
            registry.register(
                self.model_id,
                checkpoint=checkpoint_uuid,
                experiment_id=experiment_id,
                labels=list(labels),
                reason=reason,
                **fields,
            )
        )
        return AsyncModelVersion(self._session, made)

    async def get_version(self, version: int | str = -1) -> AsyncModelVersion:
        """Return a version by its number, semantic version or label; -1 is the newest.

        Raises:
            NotFound: There is none.
        """
        return AsyncModelVersion(self._session, await self._session.run(registry.get_version(self.model_id, version)))

    async def list_versions(
        self, order_by: OrderBy | str = OrderBy.DESCENDING, *, limit: int | None = None
    ) -> list[AsyncModelVersion]:
        """Return its versions, newest first unless told otherwise.

        Args:
            order_by: The direction.
            limit: At most this many, of the newest.
        """
        views = await self._session.run(registry.list_versions(self.model_id, limit))
        if OrderBy(order_by) is OrderBy.ASCENDING:
            views.reverse()
        return [AsyncModelVersion(self._session, view) for view in views]

    async def get_versions(self, order_by: OrderBy | str = OrderBy.DESCENDING) -> list[AsyncModelVersion]:
        """Do the same as `list_versions`, which replaced it in Determined."""
        return await self.list_versions(order_by)

    async def compare(self, *versions: int | str) -> Comparison:
        """Compare versions: metrics, hyperparameters, and what differs of config, environment and code.

        Args:
            versions: Numbers, semantic versions or labels, 2 to 10; none: the newest two.
        """
        return await self._session.run(registry.compare(self.model_id, versions))

    # --- labels of versions

    async def move_label(
        self, label: str, version: int | str, *, reason: str = "", expected: int | None = None
    ) -> LabelMove:
        """Give a label, such as `production`, to a version, and take it from the one that had it.

        Args:
            label: The label.
            version: A number, semantic version or another label.
            reason: Why, for the history.
            expected: The number of the version that has it now, 0 for none: if another has it, nothing changes.

        Raises:
            Conflict: Another version has it than is expected; the message says who moved it.
        """
        move = await self._session.run(registry.move_label(self.model_id, label, version, reason, expected))
        await self.reload()
        return move

    async def remove_label(self, label: str, *, reason: str = "", expected: int | None = None) -> LabelMove:
        """Take a label away: no version has it then."""
        move = await self._session.run(registry.remove_label(self.model_id, label, reason, expected))
        await self.reload()
        return move

    async def label_history(self, label: str | None = None) -> list[LabelMove]:
        """Return who moved which label when and why, newest first."""
        return await self._session.run(registry.history(self.model_id, label))

    # --- what people write about it

    async def set_name(self, name: str) -> None:
        """Give it another name."""
        await self._edit(name=name)

    async def set_description(self, description: str) -> None:
        """Describe it; an empty text removes the description."""
        await self._edit(description=description)

    async def set_notes(self, notes: str) -> None:
        """Replace its notes, Markdown of up to 100,000 characters."""
        await self._edit(notes=notes)

    async def set_labels(self, labels: Collection[str]) -> None:
        """Replace the words by which it is found."""
        await self._edit(labels=list(labels))

    async def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Set keys of its metadata; others stay."""
        await self._edit(set_metadata=dict(metadata))

    async def remove_metadata(self, keys: Iterable[str]) -> None:
        """Remove keys of its metadata."""
        await self._edit(remove_metadata=list(keys))

    async def archive(self) -> None:
        """Have lists leave it out; it gets no versions then."""
        await self._edit(archived=True)

    async def unarchive(self) -> None:
        """Have lists show it again."""
        await self._edit(archived=False)

    async def move_to_workspace(self, workspace: str | int = "", *, workspace_name: str | None = None) -> None:
        """Move it: the members of that workspace see it from then on, with the checkpoints of its versions.

        Args:
            workspace: A name, `OWNER/NAME` or id; empty: your personal one.
            workspace_name: The same, by Determined's name for it.
        """
        named = workspace if workspace_name is None else workspace_name
        self.view = await self._session.run(projects.move_model(self.model_id, named))

    async def delete(self, *, force: bool = False) -> None:
        """Delete it with its versions; their checkpoints stay.

        Raises:
            Conflict: Labels point at its versions, and it is not forced.
        """
        await self._session.run(registry.delete_model(self.model_id, force=force))

    # --- sharing

    async def list_grants(self) -> list[GrantView]:
        """Return with whom it is shared."""
        return await self._session.run(registry.grants(self.model_id))

    async def share(self, *, user: str | None = None, group: str | None = None, write: bool = False) -> list[GrantView]:
        """Share it, with the checkpoints of its versions; return all grants.

        Args:
            user: A user of the Hub.
            group: Or a group of the Hub.
            write: They may also change it.
        """
        return await self._session.run(registry.share(self.model_id, *_to(user, group), write=write))

    async def unshare(self, *, user: str | None = None, group: str | None = None) -> list[GrantView]:
        """Take a grant back; return the remaining ones."""
        return await self._session.run(registry.unshare(self.model_id, *_to(user, group)))

    async def _edit(self, **changes: Any) -> None:
        self.view = await self._session.run(registry.edit_model(self.model_id, **changes))


def _to(user: str | None, group: str | None) -> tuple[str, str]:
    if user is not None and group is None:
        return "user", user
    if group is not None and user is None:
        return "group", group
    raise ValueError("name a user or a group")
