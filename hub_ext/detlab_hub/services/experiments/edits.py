"""What people write about an experiment (name, description, notes, labels), and whether lists leave it out.

The config stays as it was submitted: a name in it is that of the submission.
"""

from __future__ import annotations

from detlab.errors import Conflict
from detlab.schemas.script_names import normal
from detlab.schemas.text_limits import MOST_LABELS
from detlab.schemas.wire import EditExperiment, ExperimentState, ExperimentView
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.notes import check_notes
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import experiment_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.current import current_config
from detlab_hub.services.base.configs.rules import rules_of
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.views import experiment_views
from detlab_hub.store.tables import ExperimentRow, clean_text

_TEXTS = ("name", "description", "notes")
_IN_CONFIG = ("name", "description")


class Edits(Service):
    """Changes of an experiment that its tasks do not notice."""

    async def edit(self, caller: Caller, experiment_id: int, wanted: EditExperiment) -> ExperimentView:
        """Carry out an edit, all of it or nothing; the same again changes nothing.

        Raises:
            ConfigError: A config policy sets what is to change.
            Conflict: It is to be archived and has not ended, or would have too many labels; or somebody has changed the
                notes since `notes_before`.
            Forbidden: The caller may read it, not change it; or not archive it, which is its owner's.
            NotFound: There is no such experiment for the caller.
        """

        def edit(unit: UnitOfWork) -> ExperimentView:
            row = experiment_for(unit.session, caller, experiment_id, Action.EXPERIMENT_EDIT)
            if wanted.archived is not None:
                experiment_for(unit.session, caller, experiment_id, Action.EXPERIMENT_ARCHIVE)
            check_notes(f"experiment {experiment_id}", row.notes, wanted.notes, wanted.notes_before)
            before, labels = current_config(row), set(row.labels)
            changed = [*_write(row, wanted), *_label(row, wanted)]
            if changed:
                ruled = {field: getattr(row, field) for field in _IN_CONFIG if field in changed}
                if labels - set(row.labels):  # one more is allowed, whatever a policy of later sets
                    ruled["labels"] = row.labels
                rules_of(unit.session, row).check_change(before, ruled)
                row.edited_at = unit.now
                audit.note(unit, caller, "experiment.edit", f"experiment {experiment_id}", ", ".join(changed))
            moved = _archive(unit, row, archived=wanted.archived)
            if moved:
                audit.note(unit, caller, f"experiment.{moved}", f"experiment {experiment_id}", row.name)
            if changed or moved:
                unit.changed_experiment(experiment_id)
            return experiment_views.experiment_view(unit.session, row, caller, self._context.pending_reasons)

        return await self._context.write(edit)


def _write(row: ExperimentRow, wanted: EditExperiment) -> list[str]:
    """Set the texts that are given; return the names of those that changed."""
    changed = []
    for field in _TEXTS:
        text = getattr(wanted, field)
        if text is not None and clean_text(text) != (getattr(row, field) or ""):
            setattr(row, field, clean_text(text))
            changed.append(field)
    return changed


def _label(row: ExperimentRow, wanted: EditExperiment) -> list[str]:
    if wanted.labels is None and not (wanted.add_labels or wanted.remove_labels):
        return []
    labels = list(row.labels if wanted.labels is None else wanted.labels) + wanted.add_labels
    gone = set(wanted.remove_labels)
    labels = [label for label in dict.fromkeys(map(normal, labels)) if label not in gone]
    if labels == row.labels:
        return []
    if len(labels) > MOST_LABELS:
        raise Conflict(
            f"experiment {row.id} would have {len(labels)} labels; {MOST_LABELS} is the most",
            hint=f"Remove some first: det experiment label remove {row.id} LABEL",
        )
    row.labels = labels
    return ["labels"]


def _archive(unit: UnitOfWork, row: ExperimentRow, *, archived: bool | None) -> str:
    """Archive or restore it; return the verb, empty if nothing changed."""
    if archived is None or archived == (row.archived_at is not None):
        return ""
    if archived and not ExperimentState(row.state).terminal:
        raise Conflict(
            f"experiment {row.id} is {row.state}; only one that has ended can be archived",
            hint=f"det experiment kill {row.id}",
        )
    row.archived_at = unit.now if archived else None
    return "archive" if archived else "unarchive"
