# Made from registry/amodels.py by harness/make_sync.py: edit that one, not this.
"""Models and their versions, blocking."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from detlab.client.facts import TrialMetrics
from detlab.client.operations import experiments, projects, registry
from detlab.client.ordering import OrderBy
from detlab.client.registry.facts import ModelFacts, VersionFacts
from detlab.client.resources import Checkpoint
from detlab.client.transport.calls import Progress
from detlab.client.transport.downloads import AnyMode
from detlab.client.transport.session import Session
from detlab.schemas.wire import GrantView
from detlab.schemas.wire.registry import Comparison, LabelMove, LineageGraph, ModelView, VersionView


class ModelVersion(VersionFacts):
    """A version of a model, blocking: a checkpoint with its lineage."""

    def __init__(self, session: Session, view: VersionView) -> None:
        super().__init__(view)
        self._session = session

    def reload(self) -> ModelVersion:
        """Fetch the current state from the master; return itself."""
        self.view = self._session.run(registry.get_version(self.model_id, self.model_version))
        return self

    def get_checkpoint(self) -> Checkpoint:
        """Return the checkpoint that it is."""
        return Checkpoint(self._session, self._session.run(experiments.checkpoint(self.checkpoint_uuid)))

    def download(
        self, path: str | Path | None = None, mode: AnyMode = "auto", *, progress: Progress | None = None
    ) -> Path:
        """Download its files to a folder and return that folder; see `Checkpoint.download`."""
        return self.get_checkpoint().download(path, mode, progress=progress)

    def get_lineage(self) -> LineageGraph:
        """Return where it comes from, as a graph."""
        return self._session.run(registry.lineage(self.model_id, self.model_version))

    def load(self, path: str | Path | None = None, *, allow_pickle: bool = False, **options: Any) -> Any:
        """Download it, verified, and load it; see `Checkpoint.load`.

        Of a folder with one model in a pickle, which is allowed, that model is returned, and not a dict with it.

        Args:
            path: Folder to keep the files in; None: a folder of this user's cache, so that they are fetched once.
            allow_pickle: Whether files may be unpickled, which can run any code of whoever wrote them.
            options: Of `Checkpoint.load`.
        """
        options = {"alone": True, **options}
        return self.get_checkpoint().load(path, allow_pickle=allow_pickle, **options)

    def get_metrics(self, group: str | None = None) -> Iterable[TrialMetrics]:
        """Return what its trial reported at its step, by group; see `Checkpoint.get_metrics`."""
        return self.get_checkpoint().get_metrics(group)

    def iter_metrics(self, group: str | None = None) -> Iterator[TrialMetrics]:
        """Yield what its trial reported at its step, by group."""
        yield from self.get_metrics(group)

    def set_name(self, name: str) -> None:
        """Give it a name."""
        self._edit(name=name)

    def set_comment(self, comment: str) -> None:
        """Describe it; an empty text removes the description."""
        self._edit(comment=comment)

    def set_notes(self, notes: str) -> None:
        """Replace its notes, Markdown of up to 100,000 characters."""
        self._edit(notes=notes)

    def set_semver(self, semver: str) -> None:
        """Give it a semantic version, which must be above those of the versions before it.

        Raises:
            ConfigError: It is not; the message names the last one.
        """
        self._edit(semver=semver)

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Set keys of its metadata; others stay."""
        self._edit(set_metadata=dict(metadata))

    def remove_metadata(self, keys: Iterable[str]) -> None:
        """Remove keys of its metadata."""
        self._edit(remove_metadata=list(keys))

    def delete(self, *, force: bool = False) -> None:
        """Delete it; its checkpoint stays, and its number is never given again.

        Raises:
            Conflict: Labels point at it, and it is not forced.
        """
        self._session.run(registry.delete_version(self.model_id, self.model_version, force=force))

    def _edit(self, **changes: Any) -> None:
        self.view = self._session.run(registry.edit_version(self.model_id, self.model_version, **changes))


class Model(ModelFacts):
    """A registered model, blocking: a name under which versions are kept."""

    def __init__(self, session: Session, view: ModelView) -> None:
        super().__init__(view)
        self._session = session

    def reload(self) -> Model:
        """Fetch the current state from the master; return itself."""
        self.view = self._session.run(registry.get_model(self.model_id))
        return self

    # --- versions

    def register_version(
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
    ) -> ModelVersion:
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
        made = self._session.run(
            registry.register(
                self.model_id,
                checkpoint=checkpoint_uuid,
                experiment_id=experiment_id,
                labels=list(labels),
                reason=reason,
                **fields,
            )
        )
        return ModelVersion(self._session, made)

    def get_version(self, version: int | str = -1) -> ModelVersion:
        """Return a version by its number, semantic version or label; -1 is the newest.

        Raises:
            NotFound: There is none.
        """
        return ModelVersion(self._session, self._session.run(registry.get_version(self.model_id, version)))

    def list_versions(
        self, order_by: OrderBy | str = OrderBy.DESCENDING, *, limit: int | None = None
    ) -> list[ModelVersion]:
        """Return its versions, newest first unless told otherwise.

        Args:
            order_by: The direction.
            limit: At most this many, of the newest.
        """
        views = self._session.run(registry.list_versions(self.model_id, limit))
        if OrderBy(order_by) is OrderBy.ASCENDING:
            views.reverse()
        return [ModelVersion(self._session, view) for view in views]

    def get_versions(self, order_by: OrderBy | str = OrderBy.DESCENDING) -> list[ModelVersion]:
        """Do the same as `list_versions`, which replaced it in Determined."""
        return self.list_versions(order_by)

    def compare(self, *versions: int | str) -> Comparison:
        """Compare versions: metrics, hyperparameters, and what differs of config, environment and code.

        Args:
            versions: Numbers, semantic versions or labels, 2 to 10; none: the newest two.
        """
        return self._session.run(registry.compare(self.model_id, versions))

    # --- labels of versions

    def move_label(self, label: str, version: int | str, *, reason: str = "", expected: int | None = None) -> LabelMove:
        """Give a label, such as `production`, to a version, and take it from the one that had it.

        Args:
            label: The label.
            version: A number, semantic version or another label.
            reason: Why, for the history.
            expected: The number of the version that has it now, 0 for none: if another has it, nothing changes.

        Raises:
            Conflict: Another version has it than is expected; the message says who moved it.
        """
        move = self._session.run(registry.move_label(self.model_id, label, version, reason, expected))
        self.reload()
        return move

    def remove_label(self, label: str, *, reason: str = "", expected: int | None = None) -> LabelMove:
        """Take a label away: no version has it then."""
        move = self._session.run(registry.remove_label(self.model_id, label, reason, expected))
        self.reload()
        return move

    def label_history(self, label: str | None = None) -> list[LabelMove]:
        """Return who moved which label when and why, newest first."""
        return self._session.run(registry.history(self.model_id, label))

    # --- what people write about it

    def set_name(self, name: str) -> None:
        """Give it another name."""
        self._edit(name=name)

    def set_description(self, description: str) -> None:
        """Describe it; an empty text removes the description."""
        self._edit(description=description)

    def set_notes(self, notes: str) -> None:
        """Replace its notes, Markdown of up to 100,000 characters."""
        self._edit(notes=notes)

    def set_labels(self, labels: Collection[str]) -> None:
        """Replace the words by which it is found."""
        self._edit(labels=list(labels))

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Set keys of its metadata; others stay."""
        self._edit(set_metadata=dict(metadata))

    def remove_metadata(self, keys: Iterable[str]) -> None:
        """Remove keys of its metadata."""
        self._edit(remove_metadata=list(keys))

    def archive(self) -> None:
        """Have lists leave it out; it gets no versions then."""
        self._edit(archived=True)

    def unarchive(self) -> None:
        """Have lists show it again."""
        self._edit(archived=False)

    def move_to_workspace(self, workspace: str | int = "", *, workspace_name: str | None = None) -> None:
        """Move it: the members of that workspace see it from then on, with the checkpoints of its versions.

        Args:
            workspace: A name, `OWNER/NAME` or id; empty: your personal one.
            workspace_name: The same, by Determined's name for it.
        """
        named = workspace if workspace_name is None else workspace_name
        self.view = self._session.run(projects.move_model(self.model_id, named))

    def delete(self, *, force: bool = False) -> None:
        """Delete it with its versions; their checkpoints stay.

        Raises:
            Conflict: Labels point at its versions, and it is not forced.
        """
        self._session.run(registry.delete_model(self.model_id, force=force))

    # --- sharing

    def list_grants(self) -> list[GrantView]:
        """Return with whom it is shared."""
        return self._session.run(registry.grants(self.model_id))

    def share(self, *, user: str | None = None, group: str | None = None, write: bool = False) -> list[GrantView]:
        """Share it, with the checkpoints of its versions; return all grants.

        Args:
            user: A user of the Hub.
            group: Or a group of the Hub.
            write: They may also change it.
        """
        return self._session.run(registry.share(self.model_id, *_to(user, group), write=write))

    def unshare(self, *, user: str | None = None, group: str | None = None) -> list[GrantView]:
        """Take a grant back; return the remaining ones."""
        return self._session.run(registry.unshare(self.model_id, *_to(user, group)))

    def _edit(self, **changes: Any) -> None:
        self.view = self._session.run(registry.edit_model(self.model_id, **changes))


def _to(user: str | None, group: str | None) -> tuple[str, str]:
    if user is not None and group is None:
        return "user", user
    if group is not None and user is None:
        return "group", group
    raise ValueError("name a user or a group")
