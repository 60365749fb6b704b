"""What people change of experiments and checkpoints: names, notes, labels, the archive, metadata, files."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from detlab.client.facts import TrialMetrics, at_step
from detlab.client.operations import edits, projects, searches
from detlab.client.parts.acollection import AsyncCheckpointCollection, AsyncExperimentCollection
from detlab.client.plain_values import plain
from detlab.client.submission import ConfigSource, config_mapping, pack, put
from detlab.client.transport.session import AsyncSession
from detlab.schemas.wire import JournalEntry, ReplayedSearch, SearchAct, StandingView


class AsyncExperimentEdits(AsyncExperimentCollection):
    """The part of an asynchronous experiment that changes what people wrote about it."""

    _session: AsyncSession

    async def set_name(self, name: str) -> None:
        """Give it another name; its config keeps the one it was submitted with."""
        await self._edit(name=name)

    async def set_description(self, description: str) -> None:
        """Describe it; an empty text removes the description."""
        await self._edit(description=description)

    async def set_notes(self, notes: str, *, before: str | None = None) -> None:
        """Replace its notes, of up to 100,000 characters.

        Args:
            notes: The new ones.
            before: What they were when you read them.

        Raises:
            Conflict: They are not `before` any more: somebody has changed them.
        """
        await self._edit(notes=notes, **({} if before is None else {"notes_before": before}))

    async def set_labels(self, labels: Collection[str]) -> None:
        """Replace all its labels."""
        await self._edit(labels=list(labels))

    async def add_label(self, label: str) -> None:
        """Add a label; nothing changes if it has it."""
        await self._edit(add_labels=[label])

    async def remove_label(self, label: str) -> None:
        """Remove a label; nothing changes if it does not have it."""
        await self._edit(remove_labels=[label])

    async def archive(self) -> None:
        """Have lists leave it out.

        Raises:
            Conflict: It has not ended.
        """
        await self._edit(archived=True)

    async def unarchive(self) -> None:
        """Have lists show it again."""
        await self._edit(archived=False)

    async def continue_(
        self,
        max_length: int | Mapping[str, int] | None = None,
        *,
        config: ConfigSource | None = None,
        trial_ids: Sequence[int] = (),
        from_earlier: bool = False,
    ) -> None:
        """Let its trials train on from their checkpoints, after it has ended: the same trials, with the same curves.

        Without a greater length those that failed, were canceled or ran out of time go on; with one also those that
        have trained to their end.

        Args:
            max_length: The new `searcher.max_length`: `{"epochs": 40}`, or a number in the unit that it has.
            config: Keys to change: `searcher.max_length`, `searcher.max_time` and `max_restarts`.
            trial_ids: Only these trials.
            from_earlier: Also where the newest checkpoint of a trial is gone: it repeats what followed an earlier one.

        Raises:
            ConfigError: A key cannot be changed, or its value is wrong.
            Conflict: It has not ended, its search cannot go on, or a checkpoint is gone, which is named.
        """
        changes = {} if config is None else config_mapping(config)
        if max_length is not None:
            put(changes, "searcher.max_length", plain(max_length))
        wanted = edits.go_on(self.id, config=changes, trial_ids=list(trial_ids), from_earlier=from_earlier)
        self.view = await self._session.run(wanted)

    async def move(self, workspace: str | int = "", project: str | int = "", *, keep_storage: bool = False) -> None:
        """Move it to another project: the members of its workspace see it from then on.

        Args:
            workspace: A name, `OWNER/NAME` or id; empty: the personal one of its owner.
            project: A name or id; empty: the one for what names none.
            keep_storage: Also if the workspace gives another storage: its checkpoints stay where they are.

        Raises:
            ConfigError: There is no such workspace or project, or it is archived.
            Conflict: The workspace gives another storage for checkpoints.
        """
        moved = projects.move_experiment(self.id, workspace, project, keep_storage=keep_storage)
        self.view = await self._session.run(moved)

    async def move_to_project(self, project_id: int) -> None:
        """Move it to a project, by the project's id; see `move`."""
        await self.move(project=project_id)

    async def extend_search(self, trials: int = 0, units: int = 0) -> None:
        """Have its search make further trials, or train the longest ones further.

        Args:
            trials: Further trials.
            units: Further units of the time metric for the longest trials.

        Raises:
            Conflict: The search is over, or its method cannot be extended.
        """
        await self._steer("extend", trials=trials, units=units)

    async def add_points(self, points: Sequence[Mapping[str, Any]]) -> None:
        """Have its next trials train at these hyperparameters, beyond its budget so far.

        Raises:
            Conflict: The search is over, or a point does not lie in its space.
        """
        await self._steer("add", points=points)

    async def retry_failed(self, trial_ids: Sequence[int] = ()) -> None:
        """Make new trials at the points of failed trials, by default of all; also after the search has ended.

        Raises:
            Conflict: It was canceled, its method makes no further trials, or no such trial has failed.
        """
        await self._steer("retry", trial_ids=trial_ids)

    async def edit_bounds(self, hyperparameters: Mapping[str, Any]) -> None:
        """Draw further trials from this `hyperparameters` block.

        Raises:
            Conflict: The search is over, or its method cannot take the block.
        """
        await self._steer("bounds", hyperparameters=hyperparameters)

    async def set_concurrency(self, limit: int) -> None:
        """Change how many of its trials run at a time, 0 for no limit; those that run are left to.

        Raises:
            Conflict: The search is over, or its method runs a fixed number.
        """
        await self._steer("concurrency", limit=limit)

    async def stop_trial(self, trial_id: int) -> None:
        """Stop one of its trials; what the trial has reported counts.

        Raises:
            Conflict: The search is over, or the trial has ended.
        """
        await self._steer("stop", trial_ids=[trial_id])

    async def promote_trial(self, trial_id: int) -> int | None:
        """Let one of its trials train on to the next rung; return that rung's units of the time metric.

        Raises:
            Conflict: The search is over, its method has no rung for the trial, or the trial is promoted already.
        """
        steered = await self._session.run(searches.steer(self.id, "promote", trial_ids=[trial_id]))
        self.view = steered
        return steered.promoted_to

    async def replace_search_code(self, model_dir: str | Path, includes: Iterable[str | Path] = ()) -> None:
        """Replace the code of a custom search's class, or that of the trials of another search that is paused.

        Args:
            model_dir: The directory that holds the code.
            includes: Further files and directories, each put at the top.

        Raises:
            BundleError: The code cannot be packed.
            Conflict: The search is over, or its trials may run.
            Forbidden: It is another user's, who shares it.
        """
        bundle = await asyncio.to_thread(pack, model_dir, includes, None)
        self.view = await self._session.run(searches.replace_code(self.id, bundle))

    async def correct_metric(self, name: str) -> None:
        """Say the right name of the searcher's metric, as long as no trial has reported it by the one it has.

        Raises:
            Conflict: The search is over, has values of its metric, or has several metrics.
        """
        await self._steer("metric", metric=name)

    async def search_journal(self, *, acts: bool = False) -> list[JournalEntry]:
        """Return the events of its search, each with what the search decided on it.

        Args:
            acts: Only what people did to it.
        """
        return await self._session.run(searches.journal(self.id, acts=acts))

    async def search_standing(self) -> list[StandingView]:
        """Return how many trials are at each rung, round or generation of its search; empty for methods without.

        Raises:
            Conflict: The journal is too long, or this version of the master does not decide as it records.
        """
        return await self._session.run(searches.standing(self.id))

    async def replay_search(self, at: int | None = None) -> ReplayedSearch:
        """Return the state of its search at an event, by default the newest: each trial, and why it was stopped.

        Raises:
            NotFound: There is no such event.
        """
        return await self._session.run(searches.replay(self.id, at))

    async def _steer(self, act: SearchAct, **fields: Any) -> None:
        self.view = await self._session.run(searches.steer(self.id, act, **fields))

    async def _edit(self, **changes: Any) -> None:
        self.view = await self._session.run(edits.experiment(self.id, **changes))


class AsyncCheckpointEdits(AsyncCheckpointCollection):
    """The part of an asynchronous checkpoint that changes it, and reads the metrics of its step."""

    _session: AsyncSession

    async def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Set keys of its metadata; other keys stay. `metadata.json` in the storage stays as the trial wrote it."""
        self.view = await self._session.run(edits.checkpoint(self.uuid, metadata=dict(metadata)))

    async def remove_metadata(self, keys: Sequence[str]) -> None:
        """Remove keys of its metadata; those that it does not have are no mistake."""
        self.view = await self._session.run(edits.checkpoint(self.uuid, remove_metadata=list(keys)))

    async def delete(self, *, now: bool = False) -> None:
        """Put it into the trash, from which `undelete` restores it for some days; its record stays, as DELETED.

        Args:
            now: Remove its files at once, also if it is in the trash already.

        Raises:
            Conflict: Something pins it (see `get_pins`); all that does is listed.
            StorageError: The master does not know its storage.
        """
        self.view = await self._session.run(edits.delete_checkpoint(self.uuid, now=now))

    async def remove_files(self, globs: Sequence[str]) -> None:
        """Delete those of its files that match a pattern, at once; it can no longer be resumed from.

        Args:
            globs: `*` and `?` match within a folder, `**` matches folders, too: `optimizer/**`, `*.pt`.

        Raises:
            Conflict: Something pins it (see `get_pins`); all that does is listed.
            StorageError: The master cannot reach its storage.
        """
        self.view = await self._session.run(edits.remove_files(self.uuid, globs))

    async def get_metrics(self, group: str | None = None) -> Iterable[TrialMetrics]:
        """Return the reports that its trial made at its step, of one group or of all; values are exact."""
        return at_step(self.view, await self._session.run(edits.checkpoint_metrics(self.uuid, group)))
