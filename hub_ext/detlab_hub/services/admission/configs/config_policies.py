"""The use cases of config policies: set, shown, deleted, by administrators of the cluster or admins of a workspace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, Forbidden, Problem
from detlab.schemas import expconf
from detlab.schemas.expconf.raw.paths import render
from detlab.schemas.wire import ProblemView
from detlab.schemas.wire.configs.config_policies import (
    PolicyConstraints,
    PolicyQuery,
    PolicyView,
    SetPolicy,
    Workload,
)
from detlab_hub.core.rights import Action, ObjectKind
from detlab_hub.services.admission.configs.layers import pool_problem
from detlab_hub.services.admission.workspace_defaults import check_storage
from detlab_hub.services.base import audit
from detlab_hub.services.base.access import administers, check_administers, has_secrets_of, person, workspace_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs import parts
from detlab_hub.services.base.configs.rules import ConfigRule, rule_of
from detlab_hub.services.base.context import Service
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.queries import jobs, workspaces
from detlab_hub.store.queries.configs import policies
from detlab_hub.store.tables import CLUSTER, ConfigPolicyRow, WorkspaceRow

REFUSED = "this cannot be a config policy"


class ConfigPolicies(Service):
    """Use cases of config policies."""

    async def get(self, caller: Caller, query: PolicyQuery) -> PolicyView:
        """Return a policy, credentials masked; everybody sees the cluster's, members that of their workspace.

        Raises:
            NotFound: There is no such workspace for the caller.
        """

        def look(s: Session) -> PolicyView:
            place = None if not query.workspace else workspace_for(s, caller, query.workspace)
            return _view(s, query.workload, place)

        return await self._context.read(look)

    async def set(self, caller: Caller, wanted: SetPolicy) -> PolicyView:
        """Set or replace a policy. Nothing that runs is ended or changed by it.

        Returns:
            The policy, with warnings of what runs against it, and of what another policy says otherwise.

        Raises:
            ConfigError: With every mistake of it, or it contradicts itself or the cluster's.
            Conflict: The workspace is somebody's personal one.
            Forbidden: The caller is no administrator there, or only those of the cluster may set that.
            NotFound: There is no such workspace for the caller.
        """

        def put(unit: UnitOfWork) -> PolicyView:
            s = unit.session
            place = _place(s, caller, wanted.workspace, Action.CONFIG_POLICY_SET)
            key = CLUSTER if place is None else place.id
            row = s.get(ConfigPolicyRow, (key, wanted.workload))
            before = row.invariant_config if row is not None and has_secrets_of(caller, row.set_by) else None
            invariant = parts.unmasked(wanted.invariant_config, before, "" if row is None else row.set_by)
            problems = _problems(unit, wanted.workload, invariant, wanted.constraints)
            if expconf.errors_of(problems):
                raise ConfigError(expconf.in_order(problems), REFUSED)
            if not administers(caller, ObjectKind.CLUSTER):
                _check_admins_may(invariant)
            if row is None:
                row = ConfigPolicyRow(workspace_id=key, workload=wanted.workload)
                s.add(row)
            row.invariant_config = invariant
            row.constraints = wanted.constraints.model_dump(exclude_none=True)
            row.set_by, row.set_at = person(caller).name, unit.now
            s.flush()
            problems += _beside(s, row)
            if expconf.errors_of(problems):
                raise ConfigError(expconf.in_order(problems), REFUSED)
            problems += _running(s, row)
            audit.note(unit, caller, Action.CONFIG_POLICY_SET, _subject(row), _said(row))
            view = _view(s, wanted.workload, place)
            shown = [ProblemView.model_validate(one.to_dict()) for one in expconf.in_order(problems)]
            return view.model_copy(update={"warnings": shown})

        return await self._context.write(put)

    async def remove(self, caller: Caller, query: PolicyQuery) -> PolicyView:
        """Delete a policy; return it as it was. Where none is set, nothing changes.

        Raises:
            Forbidden: The caller is no administrator there.
            NotFound: There is no such workspace for the caller.
        """

        def remove(unit: UnitOfWork) -> PolicyView:
            s = unit.session
            place = _place(s, caller, query.workspace, Action.CONFIG_POLICY_REMOVE)
            view = _view(s, query.workload, place)
            row = s.get(ConfigPolicyRow, (CLUSTER if place is None else place.id, query.workload))
            if row is not None:
                audit.note(unit, caller, Action.CONFIG_POLICY_REMOVE, _subject(row), _said(row))
                s.delete(row)
            return view

        return await self._context.write(remove)


def _place(s: Session, caller: Caller, workspace: str, action: Action) -> WorkspaceRow | None:
    """Return the workspace whose policy the caller may change; None: they may change the cluster's."""
    if not workspace:
        check_administers(caller, ObjectKind.CLUSTER, "change config policies of the cluster")
        return None
    row = workspace_for(s, caller, workspace, action)
    if row.kind == workspaces.PERSONAL:
        raise Conflict(
            f"workspace {row.id} is {row.owner}'s personal one, which has no policies",
            hint="The policy of the cluster holds there: det config-policies set experiment FILE",
        )
    return row


def _check_admins_may(invariant: Mapping[str, Any]) -> None:
    """Check that an admin of a workspace may have its members' configs say this.

    Raises:
        Forbidden: It decides what runs as them, or where their data go.
    """
    if beyond := parts.beyond_admins(invariant):
        raise Forbidden(
            f"only administrators of the cluster may set {', '.join(beyond)} in the configs of others",
            hint="An administrator of the cluster may set it: det config-policies set",
        )
    check_storage(invariant.get("checkpoint_storage") or {})


# --- what is wrong with one


def _problems(
    unit: UnitOfWork, workload: Workload, invariant: Mapping[str, Any], constraints: PolicyConstraints
) -> list[Problem]:
    """Return the mistakes of a policy, and where it contradicts itself."""
    found = parts.checked(invariant, workload=workload)
    if expconf.errors_of(found):
        return [Problem(_inside(one.path), one.message, one.hint, one.level) for one in found]
    found += [*pool_problem(unit.settings, invariant), *parts.not_of_all_kinds(invariant)]
    limits = ConfigRule("it", max_slots=constraints.resources.max_slots, priority_limit=constraints.priority_limit)
    found += _against(invariant, limits, "of the same policy")
    return [Problem(_inside(one.path), one.message, one.hint, one.level) for one in found]


def _inside(path: str) -> str:
    return f"invariant_config.{path}" if path else "invariant_config"


def _against(invariant: Mapping[str, Any], limits: ConfigRule, whose: str) -> Iterator[Problem]:
    """Yield where what an invariant sets is beyond a limit, so that no config could be submitted."""
    never = "no config could keep to both"
    for key in ("slots", "slots_per_trial", "max_slots"):
        value = parts.at(invariant, ("resources", key))
        if isinstance(value, int) and limits.max_slots is not None and value > limits.max_slots:
            said = f"is {value}, and constraints.resources.max_slots {whose} is {limits.max_slots}: {never}"
            yield Problem(f"resources.{key}", said)
    priority = parts.at(invariant, ("resources", "priority"))
    if isinstance(priority, int) and limits.priority_limit is not None and priority < limits.priority_limit:
        said = f"is {priority}, and constraints.priority_limit {whose} is {limits.priority_limit}: {never}"
        yield Problem("resources.priority", said)


def _beside(s: Session, row: ConfigPolicyRow) -> list[Problem]:
    """Return where a policy and those above or below it contradict each other: errors where nothing could run."""
    rows = policies.of_workload(s, row.workload)
    names = workspaces.references(s, {one.workspace_id for one in rows} - {CLUSTER})
    rules = {one.workspace_id: rule_of(one, names.get(one.workspace_id, "")) for one in rows}
    cluster = rules.get(CLUSTER)
    if cluster is None:
        return []
    if row.workspace_id != CLUSTER:
        return _below(cluster, rules[row.workspace_id], "error")
    return [one for key, rule in rules.items() if key != CLUSTER for one in _below(cluster, rule, "warning")]


def _below(cluster: ConfigRule, rule: ConfigRule, level: Any) -> list[Problem]:
    """Return where a workspace's policy contradicts the cluster's, which wins.

    Args:
        cluster: That of the cluster.
        rule: That of the workspace.
        level: Of what lets nothing run: a workspace cannot set it, the cluster can, over what is there.
    """
    found = [
        Problem(_inside(one.path), f"of {rule.of} {one.message}", None, level)
        for one in [
            *_against(rule.invariant, cluster, "of the cluster's policy"),
            *_against(cluster.invariant, rule, f"of {rule.of}"),
        ]
    ]
    own = dict(parts.leaves(rule.invariant))
    for place, value in parts.leaves(cluster.invariant):
        if place in own and own[place] != value and not isinstance(value, list):
            said = f"is set otherwise by {rule.of} and by the cluster: the cluster's counts"
            found.append(Problem(_inside(render(place)), said, None, "warning"))
    if cluster.max_slots is not None and (rule.max_slots or 0) > cluster.max_slots:
        said = f"of {rule.of} is {rule.max_slots}, and that of the cluster {cluster.max_slots}: the smaller one counts"
        found.append(Problem("constraints.resources.max_slots", said, None, "warning"))
    if rule.priority_limit is not None and rule.priority_limit < (cluster.priority_limit or 0):
        said = f"of {rule.of} is {rule.priority_limit}, and that of the cluster {cluster.priority_limit}: that counts"
        found.append(Problem("constraints.priority_limit", said, None, "warning"))
    return found


def _running(s: Session, row: ConfigPolicyRow) -> list[Problem]:
    """Return warnings of what holds slots or waits for some beyond the limits: it goes on as it is."""
    limits, found, together = rule_of(row, ""), set[str](), Counter[str]()
    for one in jobs.live(s):
        if row.workspace_id not in (CLUSTER, one.workspace_id) or (one.kind is None) != (
            row.workload == parts.EXPERIMENT
        ):
            continue
        name = one.task_id or str(one.experiment_id)
        together[name] += one.slots_needed
        open_ended = one.max_slots is None and one.kind is None
        slots = together[name] if open_ended else max(one.slots_needed, one.max_slots or 0)
        over = limits.max_slots is not None and slots > limits.max_slots
        if over or (limits.priority_limit is not None and one.priority < limits.priority_limit):
            found.add(name)
    if not found:
        return []
    what = "experiments" if row.workload == parts.EXPERIMENT else "tasks"
    said = (
        f"{len(found)} {what} that run or wait are beyond it ({', '.join(sorted(found)[:5])}): they go on as they are"
    )
    return [
        Problem("constraints", said, "their next change is held to it; det job update, det experiment pause", "warning")
    ]


# --- views


def _view(s: Session, workload: Workload, place: WorkspaceRow | None) -> PolicyView:
    row = s.get(ConfigPolicyRow, (CLUSTER if place is None else place.id, workload))
    view = PolicyView(workload=workload, workspace="" if place is None else f"{place.owner}/{place.name}")
    if row is None:
        return view
    return view.model_copy(
        update={
            "invariant_config": parts.masked(row.invariant_config),
            "constraints": PolicyConstraints.model_validate(row.constraints),
            "set_by": row.set_by,
            "set_at": row.set_at,
        }
    )


def _subject(row: ConfigPolicyRow) -> str:
    return "cluster" if row.workspace_id == CLUSTER else f"workspace {row.workspace_id}"


def _said(row: ConfigPolicyRow) -> str:
    keys = [f"invariant {render(place)}" for place, _ in parts.leaves(row.invariant_config)]
    limits = [render(place) for place, _ in parts.leaves(row.constraints)]
    return f"{row.workload}: {', '.join([*keys, *limits]) or 'nothing'}"[:1000]
