"""Tells people: writes an alert for its receiver, and a call for webhook and e-mail of its rule, in one transaction.

What one run or rule tells one person is limited, and the limit told: further alerts are counted by the last one that
was kept. Texts are anybody's; they are kept as they are, shortened, and shown as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from detlab.schemas.wire import AlertRecord
from detlab.schemas.wire.notify.alerts import LEVELS, TEXT_CHARS, TITLE_CHARS
from detlab_hub.core.alerts import AlertSubject
from detlab_hub.core.rights import Right, right_of
from detlab_hub.services.base.access import may_read, person, tracked_thing
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.notify.mails import enqueue_mail
from detlab_hub.services.notify.outbox import enqueue_for
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.notify import alerts, user_settings
from detlab_hub.store.tables import AlertRow, AlertRuleRow, ExperimentRow, HookRow, TrackedRunRow, TrialRow

MINUTE = 60.0
OF_RUN, OF_RULE = 10, 60
"""Alerts that one run, and one rule, may tell one person in a minute."""
TOO_MANY = "too many alerts"
"""Begins the warning of a trial some of whose alerts are not kept."""


@dataclass(frozen=True)
class Said:
    """What somebody is told.

    Attributes:
        kind: See `wire.notify.alerts.AlertKind`.
        title: A line.
        text: Details.
        level: `debug`, `info`, `warn` or `error`.
        experiment_id: What it is about; None: no experiment.
        trial_id: The trial whose code says it.
        run_id: The run from elsewhere that says it.
        line: The line of output that it is about: `pattern`, `task`, `node`, `line`.
    """

    kind: str
    title: str
    text: str = ""
    level: str = "info"
    experiment_id: int | None = None
    trial_id: int | None = None
    run_id: str | None = None
    line: Mapping[str, str] | None = None


def tell(
    unit: UnitOfWork,
    owner: str,
    source: str,
    said: Said,
    *,
    most: int,
    bell: bool = True,
    hooks: Sequence[int] = (),
    email: bool = False,
) -> bool:
    """Tell one person; return False if it is too much in a minute, which the last alert that was kept then says.

    Args:
        unit: The unit of work of what happened.
        owner: Who is told. That they may read it is for the caller to know.
        source: What tells.
        said: What.
        most: How many of this source in a minute.
        bell: Whether it is new in their list; else it is there as read.
        hooks: Their webhooks that get it.
        email: Whether it is sent to their address, if they have one.
    """
    return tell_all(unit, owner, source, [said], most=most, bell=bell, hooks=hooks, email=email)


def tell_all(
    unit: UnitOfWork,
    owner: str,
    source: str,
    many: Sequence[Said],
    *,
    most: int,
    bell: bool = True,
    hooks: Sequence[int] = (),
    email: bool = False,
) -> bool:
    """Tell one person several things, as `tell` does; return False if not all are kept.

    Their own settings go before a rule: what is not mailed because of them is new at the bell, if they want that.

    What is too much costs no statement of its own: a batch of reports may have a thousand of them.
    """
    wants = user_settings.settings_of(unit.session, owner)
    if email and not wants.email:
        email, bell = False, True
    bell = bell and wants.bell
    recent = alerts.recent(unit.session, source, owner, unit.now - MINUTE, most)
    kept = many[: most - len(recent)]
    newest = recent[0] if recent else None
    for said in kept:
        newest = _write(unit, owner, source, said, bell=bell, hooks=hooks, email=email)
    if (more := len(many) - len(kept)) and newest is not None:
        alerts.hold_back(unit.session, newest, more)
    return not more


def _write(
    unit: UnitOfWork, owner: str, source: str, said: Said, *, bell: bool, hooks: Sequence[int], email: bool
) -> int:
    """Write an alert, the calls of webhooks and an e-mail; return its id.

    What was to be sent by e-mail, and is not, is new in the list, so that nobody misses it.
    """
    row = AlertRow(
        owner=owner,
        source=source,
        kind=said.kind,
        level=said.level,
        title=" ".join(said.title.split())[:TITLE_CHARS],
        text=said.text[:TEXT_CHARS],
        experiment_id=said.experiment_id,
        trial_id=said.trial_id,
        run_id=said.run_id,
        created_at=unit.now,
        read_at=None if bell else unit.now,
    )
    unit.session.add(row)
    unit.session.flush()
    for hook_id in hooks:
        hook = unit.session.get(HookRow, hook_id)
        if hook is not None and hook.owner == owner and _wanted(unit.session, said, hook):
            enqueue_for(unit, hook, said.kind, told_of(unit, said, row), said.experiment_id)
    if email and not enqueue_mail(unit, owner, said.kind, told_of(unit, said, row), said.experiment_id):
        row.read_at = None
    return row.id


def of_rule(rule_id: int) -> str:
    """Return what tells by a rule, as `source`."""
    return f"rule {rule_id}"


def hold_back(unit: UnitOfWork, owner: str, source: str, count: int) -> None:
    """Count further alerts by the last one of this source that was kept in this minute."""
    for last in alerts.recent(unit.session, source, owner, unit.now - MINUTE, 1):
        alerts.hold_back(unit.session, last, count)


def _wanted(s: Session, said: Said, hook: HookRow) -> bool:
    """Whether the config of the experiment (`integrations.webhooks`) lets a webhook fire for it."""
    row = None if said.experiment_id is None else s.get(ExperimentRow, said.experiment_id)
    block = {} if row is None else ((row.config.get("integrations") or {}).get("webhooks") or {})
    if block.get("exclude"):
        return False
    ids, names = block.get("webhook_id"), block.get("webhook_name")
    if ids is None and names is None:
        return True
    return hook.id in (ids or ()) or hook.name in (names or ())


def told_of(unit: UnitOfWork, said: Said, row: AlertRow) -> dict[str, Any]:
    """Return what the call of a webhook is made of."""
    experiment = None if said.experiment_id is None else unit.session.get(ExperimentRow, said.experiment_id)
    return {
        "kind": said.kind,
        "level": said.level,
        "title": row.title,
        "text": row.text,
        "experiment": None if experiment is None else _facts(unit, experiment),
        "trial_id": said.trial_id,
        "run_id": said.run_id,
        **({} if said.line is None else {"line": dict(said.line)}),
    }


def _facts(unit: UnitOfWork, row: ExperimentRow) -> dict[str, Any]:
    """Return an experiment as Determined's payloads have it."""
    place = {} if row.project_id is None else workspaces.labels(unit.session, [row.project_id])
    _, workspace, project = place.get(row.project_id or 0, ("", "", ""))
    resources = row.config.get("resources") or {}
    begun = row.started_at or row.created_at
    return {
        "id": row.id,
        "state": row.state,
        "name": row.name[:TITLE_CHARS],
        "duration": max(0, round((row.ended_at or unit.now) - begun)),
        "resource_pool": row.resource_pool,
        "slots_per_trial": resources.get("slots_per_trial", 1),
        "workspace": workspace,
        "project": project,
        "owner": row.owner,
    }


# --- what code says


def say_of_trial(unit: UnitOfWork, trial: TrialRow, records: Sequence[AlertRecord]) -> None:
    """Tell what the code of a trial says: to the owner of its experiment, and to those who have a rule for it."""
    row = unit.experiment(trial.experiment_id)
    subject = AlertSubject(row.id, row.owner, row.project_id, row.workspace_id)
    many = [_said(record, experiment_id=row.id, trial_id=trial.id) for record in records]
    kept = _say(unit, subject, f"trial {trial.id}", many, None)
    if not kept and not any(one.startswith(TOO_MANY) for one in trial.warnings):
        told = (
            f"{TOO_MANY}: {OF_RUN} in a minute are kept of a trial. The others are in its log, and counted by the last"
            " that was kept. Call alert() for what people should act on, and report the rest as metrics"
        )
        trial.warnings = [*trial.warnings, told]
        unit.changed_trial(trial)


def say_of_run(unit: UnitOfWork, row: TrackedRunRow, records: Sequence[AlertRecord]) -> bool:
    """Tell what a run from elsewhere says, likewise; return whether all was kept."""
    subject = AlertSubject(0, row.owner, row.project_id, row.workspace_id)
    return _say(unit, subject, f"run {row.id}", [_said(record, run_id=row.id) for record in records], row)


def _said(record: AlertRecord, **about: Any) -> Said:
    level = LEVELS.get(record.level.lower(), "info")
    title = record.title or record.text.strip().partition("\n")[0] or "alert"
    return Said("alert", title, record.text, level, **about)


def _say(unit: UnitOfWork, subject: AlertSubject, source: str, many: Sequence[Said], run: TrackedRunRow | None) -> bool:
    """Tell the owner, and everybody who has a rule for it and may read it; return whether the owner's were all kept."""
    hooks: dict[str, list[int]] = {subject.owner: []}
    by_mail = set[str]()
    for rule in alerts.rules_for_alerts(unit.session, subject):
        if rule.owner in hooks or _reads(unit.session, rule, subject, run):
            hooks.setdefault(rule.owner, []).extend([] if rule.hook_id is None else [rule.hook_id])
            by_mail.update([rule.owner] if rule.email else [])
    kept = {
        owner: tell_all(
            unit, owner, source, many, most=OF_RUN, hooks=list(dict.fromkeys(theirs)), email=owner in by_mail
        )
        for owner, theirs in hooks.items()
    }
    return kept[subject.owner]


def _reads(s: Session, rule: AlertRuleRow, subject: AlertSubject, run: TrackedRunRow | None) -> bool:
    caller = Caller(rule.owner, groups=frozenset(rule.owner_groups))
    return may_read(s, caller, subject.experiment_id) if run is None else reads_run(s, caller, run)


def reads_run(s: Session, caller: Caller, run: TrackedRunRow) -> bool:
    """Whether somebody may read a run from elsewhere."""
    return right_of(person(caller), tracked_thing(s, caller, run)) >= Right.READ
