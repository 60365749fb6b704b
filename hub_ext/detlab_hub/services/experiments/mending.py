"""Mends of a paused search that leave its journal alone: other code for its trials, the right name of its metric."""

from __future__ import annotations

from sqlalchemy import select

from detlab.errors import ConfigError, Conflict, Problem
from detlab.schemas.wire import ExperimentState
from detlab_hub.services.admission.bundles import may_use
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.rows import is_unmanaged
from detlab_hub.services.usertasks import search_tasks
from detlab_hub.store.tables import ExperimentRow, TrialRow


def replace_code(unit: UnitOfWork, row: ExperimentRow, caller: Caller, bundle: str | None) -> None:
    """Let the class of a custom search have other code, or the further attempts of another search's trials.

    Raises:
        ConfigError: The code was not uploaded.
        Conflict: Trials run, or have no code.
    """
    custom = row.searcher_name == search_tasks.CUSTOM
    if is_unmanaged(row):
        raise Conflict(f"the trials of experiment {row.id} are evaluated by hand: they have no code here")
    if not custom and row.state != ExperimentState.PAUSED:
        hint = f"Pause it first, so that each attempt has one code: det experiment pause {row.id}"
        raise Conflict(f"experiment {row.id} is {row.state}: its trials may run", hint=hint)
    if bundle is None or not may_use(unit.session, caller, bundle):
        hint = f"det search code {row.id} FOLDER uploads it"
        raise ConfigError([Problem("bundle", "is not code that you have uploaded", hint)])
    if custom:
        search_tasks.replace_code(unit, row, bundle)
        return
    row.bundle = bundle
    unit.changed_experiment(row.id)


def correct_metric(unit: UnitOfWork, row: ExperimentRow, name: str) -> None:
    """Have the search judge trials by a metric of another name, as long as it has judged none.

    Raises:
        ConfigError: There is no name, or another metric of the search has it.
        Conflict: The search has values of its metric, or has several.
    """
    block = row.config["searcher"]
    if not name.strip():
        raise ConfigError([Problem("metric", "the metric's name is needed")])
    if name in (block.get("constraints") or {}):
        raise ConfigError([Problem("metric", f"{name!r} is constrained: it cannot rank trials, too")])
    if block.get("metrics"):
        hint = f"Begin another search: det search clone {row.id}"
        raise Conflict(f"experiment {row.id} has several metrics: their names cannot be changed", hint=hint)
    measured = select(TrialRow.id).where(TrialRow.experiment_id == row.id, TrialRow.searcher_metric_seen.is_(True))
    unit.session.flush()
    if unit.session.scalar(measured.limit(1)) is not None:
        hint = f"Begin another search: det search clone {row.id} --set searcher.metric={name}"
        raise Conflict(f"experiment {row.id} has values of {row.metric!r}, by which it has ranked trials", hint=hint)
    row.metric = name
    row.config = {**row.config, "searcher": {**block, "metric": name}}
    unit.changed_experiment(row.id)
