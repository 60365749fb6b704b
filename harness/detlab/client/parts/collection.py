# Made from parts/acollection.py by harness/make_sync.py: edit that one, not this.
"""What an experiment keeps of its checkpoints, and what becomes of those that go."""

from __future__ import annotations

from detlab.client.facts import CheckpointFacts, ExperimentFacts
from detlab.client.operations import collection, storage
from detlab.client.transport.session import Session
from detlab.schemas.wire.storage import EmptyTrash, GcPreview, GcRequest, Pin, TrashView


class ExperimentCollection(ExperimentFacts):
    """The part of a blocking experiment that collects its checkpoints."""

    _session: Session

    def preview_gc(
        self,
        save_experiment_best: int | None = None,
        save_trial_best: int | None = None,
        save_trial_latest: int | None = None,
    ) -> GcPreview:
        """Return which checkpoints its policy, or another one, would remove and keep, and why; nothing is changed.

        Args:
            save_experiment_best: Best checkpoints of the experiment to keep; 0 if only others are given.
            save_trial_best: Best checkpoints of each trial to keep; 0 if only others are given.
            save_trial_latest: Latest checkpoints of each trial to keep; 0 if only others are given.

        Raises:
            ConfigError: A number is negative.
        """
        numbers = (save_experiment_best, save_trial_best, save_trial_latest)
        given = any(number is not None for number in numbers)
        wanted = collection.policy(*(number or 0 for number in numbers)) if given else None
        return self._session.run(collection.preview(self.id, wanted))

    def set_gc_policy(self, save_experiment_best: int, save_trial_best: int, save_trial_latest: int) -> GcPreview:
        """Change what it keeps. If it has ended, what goes is put into the trash now, otherwise when it ends.

        Raises:
            ConfigError: A number is negative.
        """
        wanted = collection.policy(save_experiment_best, save_trial_best, save_trial_latest)
        return self._session.run(collection.collect(self.id, GcRequest(policy=wanted)))

    def retry_removals(self) -> int:
        """Try again, now, to remove files that could not be removed; return of how many checkpoints.

        Raises:
            Conflict: This cluster is a copy of another one.
            Forbidden: The experiment is another user's.
        """
        return (self._session.run(collection.collect(self.id, GcRequest(retry=True)))).going

    def collect_checkpoints(self, *, now: bool = False, purge: bool = False) -> GcPreview:
        """Put what its policy does not keep into the trash.

        Args:
            now: Also if it has not ended: what its search or a trial may still need stays.
            purge: Without time in the trash: files go at once, and cannot be restored.

        Raises:
            Conflict: It has not ended, and `now` is not set.
        """
        return self._session.run(collection.collect(self.id, GcRequest(now=now, purge=purge)))

    def get_trash(self) -> TrashView:
        """Return its deleted checkpoints that can still be restored, summed up."""
        return self._session.run(storage.trash(self.id))

    def empty_trash(self, *, until: float | None = None) -> TrashView:
        """Remove its deleted checkpoints now, for good.

        Args:
            until: Only what was deleted before: `at` of what `get_trash` has shown; None: all.
        """
        return self._session.run(storage.empty_trash(EmptyTrash(experiment_id=self.id, until=until)))


class CheckpointCollection(CheckpointFacts):
    """The part of a blocking checkpoint that keeps it, or restores it."""

    _session: Session

    def undelete(self) -> None:
        """Take it out of the trash; nothing changes if it is not deleted.

        Raises:
            Conflict: Its files are gone, or are being removed.
        """
        self.view = self._session.run(collection.undelete(self.uuid))

    def get_pins(self) -> list[Pin]:
        """Return what keeps it from being deleted or collected, each with its reason."""
        return self._session.run(collection.pins(self.uuid)).items

    def bookmark(self, note: str = "") -> None:
        """Keep it, whatever the policy of its experiment says, until `unbookmark`; the same again replaces the note."""
        self._session.run(collection.bookmark(self.uuid, note))

    def unbookmark(self) -> None:
        """Remove your bookmark, or, if you have none and may delete it, those of others."""
        self._session.run(collection.unbookmark(self.uuid))
