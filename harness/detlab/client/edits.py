# Made from aedits.py by harness/make_sync.py: edit that one, not this.
"""What people change of experiments and checkpoints: names, notes, labels, the archive, metadata, files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from detlab.client.facts import CheckpointFacts, ExperimentFacts, TrialMetrics, at_step
from detlab.client.operations import edits
from detlab.client.transport.session import Session


class ExperimentEdits(ExperimentFacts):
    """The part of a blocking experiment that changes what people wrote about it."""

    _session: Session

    def set_name(self, name: str) -> None:
        """Give it another name; its config keeps the one it was submitted with."""
        self._edit(name=name)

    def set_description(self, description: str) -> None:
        """Describe it; an empty text removes the description."""
        self._edit(description=description)

    def set_notes(self, notes: str) -> None:
        """Replace its notes, of up to 100,000 characters."""
        self._edit(notes=notes)

    def set_labels(self, labels: Collection[str]) -> None:
        """Replace all its labels."""
        self._edit(labels=list(labels))

    def add_label(self, label: str) -> None:
        """Add a label; nothing changes if it has it."""
        self._edit(add_labels=[label])

    def remove_label(self, label: str) -> None:
        """Remove a label; nothing changes if it does not have it."""
        self._edit(remove_labels=[label])

    def archive(self) -> None:
        """Have lists leave it out.

        Raises:
            Conflict: It has not ended.
        """
        self._edit(archived=True)

    def unarchive(self) -> None:
        """Have lists show it again."""
        self._edit(archived=False)

    def _edit(self, **changes: Any) -> None:
        self.view = self._session.run(edits.experiment(self.id, **changes))


class CheckpointEdits(CheckpointFacts):
    """The part of a blocking checkpoint that changes it, and reads the metrics of its step."""

    _session: Session

    def add_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Set keys of its metadata; other keys stay. `metadata.json` in the storage stays as the trial wrote it."""
        self.view = self._session.run(edits.checkpoint(self.uuid, metadata=dict(metadata)))

    def remove_metadata(self, keys: Sequence[str]) -> None:
        """Remove keys of its metadata; those that it does not have are no mistake."""
        self.view = self._session.run(edits.checkpoint(self.uuid, remove_metadata=list(keys)))

    def delete(self) -> None:
        """Delete its files for good; its record stays, as DELETED. To delete it again changes nothing.

        Raises:
            Conflict: A trial that has not ended would resume from it, or start from it.
            StorageError: The master cannot reach its storage.
        """
        self.view = self._session.run(edits.delete_checkpoint(self.uuid))

    def remove_files(self, globs: Sequence[str]) -> None:
        """Delete those of its files that match a pattern; it can no longer be resumed from.

        Args:
            globs: `*` and `?` match within a folder, `**` matches folders, too: `optimizer/**`, `*.pt`.

        Raises:
            Conflict: A trial that has not ended would resume from it, or start from it.
            StorageError: The master cannot reach its storage.
        """
        self.view = self._session.run(edits.remove_files(self.uuid, globs))

    def get_metrics(self, group: str | None = None) -> Iterable[TrialMetrics]:
        """Return the reports that its trial made at its step, of one group or of all; values are exact."""
        return at_step(self.view, self._session.run(edits.checkpoint_metrics(self.uuid, group)))
