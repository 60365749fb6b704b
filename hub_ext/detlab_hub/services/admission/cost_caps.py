"""Caps of cost: what a user or a project may cost in a month (UTC), or an experiment in all.

A cap that is reached ends nothing: experiments are paused, with what they saved, and their owners told. What cannot
pause, as notebooks, goes on, and its owner is told; nothing new starts beyond the cap until it is raised or the month
is over. Costs follow from rows: those of ended allocations are added up in the transaction that ends them, those of
running ones are looked up, each at the price that stood when it got its slots.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from detlab.errors import Conflict, NotFound
from detlab.pasted import word
from detlab.schemas.jobwire import CostCapView, QuotaRequest, QuotaTo
from detlab.schemas.wire import CostView
from detlab_hub.backends.base import Node
from detlab_hub.core.rights import ObjectKind
from detlab_hub.core.scheduling import Pools
from detlab_hub.services.base.access import knows, may_read
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.accounting import day_of, month_of
from detlab_hub.services.lifecycle.rows import slots_per_trial
from detlab_hub.services.placement.active_rows import PLACED
from detlab_hub.services.views.experiment_views import trials_total
from detlab_hub.store.queries import usage
from detlab_hub.store.tables import CostCapRow, ExperimentRow, ProjectRow, clean_text

USER, PROJECT, EXPERIMENT = "user", "project", "experiment"
MOST = 10_000
"""Most caps: each is looked at every few seconds."""
PAUSED = "paused: the cap of"
"""How the warning begins that an experiment has while a cap keeps it paused."""
FOR_EVER = "ever"
"""The `month` of a cap that has none."""


class CapReached(NamedTuple):
    """A cap that is reached."""

    kind: str
    name: str
    month: str
    used: float
    amount: float

    @property
    def brief(self) -> str:
        """For whoever may read an experiment: `the cap of user ada is reached`. What others spend is not for them."""
        return f"the cap of {self.kind} {self.name} is reached"

    @property
    def text(self) -> str:
        """For who is told of it: with amounts, but for projects, as these are others', too."""
        when = "" if self.month == FOR_EVER else f" in {self.month}"
        amounts = "" if self.kind == PROJECT else f": {self.used:.2f} of {self.amount:g} used"
        return f"{self.brief}{amounts}{when}"


def put(unit: UnitOfWork, caller: Caller, request: QuotaRequest) -> str | None:
    """Set a cap; return what was changed, None if it stood before.

    Raises:
        Conflict: There are too many.
        NotFound: There is no such project or experiment.
    """
    name, amount = clean_text(request.name), request.cost or 0.0
    if request.kind in (PROJECT, EXPERIMENT):
        name = str(int(name))
        table = ProjectRow if request.kind == PROJECT else ExperimentRow
        if unit.session.get(table, int(name)) is None:
            raise NotFound(f"there is no {request.kind} {name}", hint=f"det {request.kind} list")
    row = unit.session.get(CostCapRow, (request.kind, name))
    if row is not None and row.amount == amount:
        return None
    if row is None and len(usage.caps(unit.session)) >= MOST:
        raise Conflict(f"there are {MOST} caps of cost already", hint="Remove some: det quota list")
    before = "none" if row is None else f"{row.amount:g}"
    made = {"amount": amount, "told": "", "set_by": caller.name, "set_at": unit.now}
    unit.session.merge(CostCapRow(kind=request.kind, name=name, **made))
    return f"a cap of {amount:g}, before {before}"


def remove(unit: UnitOfWork, to: QuotaTo) -> bool:
    """Remove a cap; return whether there was one."""
    name = str(int(to.name)) if to.kind in (PROJECT, EXPERIMENT) else clean_text(to.name)
    row = unit.session.get(CostCapRow, (to.kind, name))
    if row is None:
        return False
    unit.session.delete(row)
    return True


def views(s: Session, caller: Caller, now: float) -> list[CostCapView]:
    """Return the caps that a caller may see, with what is used of them."""
    rows = [row for row in usage.caps(s) if _sees(s, caller, row)]
    costs = _Costs(s, now, rows)
    found = []
    for row in rows:
        used = costs.of(row)
        found.append(
            CostCapView(
                kind=row.kind,
                name=row.name,
                cost=row.amount,
                used=round(used, 6),
                reached=used >= row.amount,
                set_by=row.set_by,
                set_at=row.set_at,
            )
        )
    return found


def _sees(s: Session, caller: Caller, row: CostCapRow) -> bool:
    if knows(caller, ObjectKind.USER, row.name if row.kind == USER else ""):
        return True
    return row.kind == EXPERIMENT and may_read(s, caller, int(row.name))


def _month(kind: str, now: float) -> str:
    return FOR_EVER if kind == EXPERIMENT else month_of(day_of(now))


class _Costs:
    """What counts under caps now. Of users and projects all is read once, however many caps there are."""

    def __init__(self, s: Session, now: float, rows: Sequence[CostCapRow]) -> None:
        self._session, self._now = s, now
        self._sums: dict[tuple[str, str], float] = defaultdict(float)
        names = {kind: {row.name for row in rows if row.kind == kind} for kind in (USER, PROJECT)}
        if not any(names.values()):
            return
        month, begin = _month(USER, now), now - _into_month(now)
        self._sums.update(((USER, owner), cost) for owner, cost in usage.costs_of_users(s, names[USER], month).items())
        of_projects = usage.costs_of_projects(s, {int(name) for name in names[PROJECT]}, month)
        self._sums.update(((PROJECT, str(number)), cost) for number, cost in of_projects.items())
        for one in usage.running_costs(s, PLACED):
            for key in ((USER, one.owner), (PROJECT, str(one.project_id))):
                self._sums[key] += one.since(begin, now)

    def of(self, row: CostCapRow) -> float:
        if row.kind == EXPERIMENT:
            return usage.cost_of_experiment(self._session, int(row.name), self._now)
        return self._sums.get((row.kind, row.name), 0.0)


def _into_month(now: float) -> float:
    """Return the seconds since the month began (UTC)."""
    return (day_of(now).day - 1) * 86_400.0 + now % 86_400.0


def reached(s: Session, now: float) -> list[CapReached]:
    """Return the caps that are reached, of experiments only those of active ones."""
    rows = usage.caps(s)
    going = set(usage.active_of(s, [int(row.name) for row in rows if row.kind == EXPERIMENT]))
    rows = [row for row in rows if row.kind != EXPERIMENT or int(row.name) in going]
    costs = _Costs(s, now, rows)
    used = [(row, costs.of(row)) for row in rows]
    return [CapReached(row.kind, row.name, _month(row.kind, now), n, row.amount) for row, n in used if n >= row.amount]


def check(
    s: Session, caller: Caller, owner: str, now: float, *, project: int | None = None, experiment: int | None = None
) -> None:
    """Refuse what would start beyond a cap.

    Args:
        s: A session.
        caller: Who asks, and is told the amounts of caps that may be seen.
        owner: Who pays.
        now: The time, in seconds since the epoch.
        project: In which it lies; None: in none.
        experiment: Which goes on; None: it is new, or no experiment.

    Raises:
        Conflict: A cap is reached.
    """
    keys = [(USER, owner), (PROJECT, str(project)), (EXPERIMENT, str(experiment))]
    rows = [row for key in keys if (row := s.get(CostCapRow, (key[0], clean_text(key[1])))) is not None]
    costs = _Costs(s, now, rows)
    for row in rows:
        used = costs.of(row)
        if used >= row.amount:
            cap = CapReached(row.kind, row.name, _month(row.kind, now), used, row.amount)
            hint = f"Have an administrator raise it: det quota set --{row.kind} {word(row.name)} --cost AMOUNT"
            raise Conflict(cap.text if _sees(s, caller, row) else cap.brief, hint=hint)


def without_pause(warnings: Sequence[str]) -> list[str]:
    """Return the warnings of an experiment that goes on: without those of caps that kept it paused."""
    return [said for said in warnings if not said.startswith(PAUSED)]


def planned(
    config: Mapping[str, Any], pools: Pools, currency: str, nodes: Iterable[Node], quota: int | None = None
) -> CostView | None:
    """Return what an experiment will cost by its config; None where its pool has no price.

    Args:
        config: A resolved config.
        pools: Of the cluster.
        currency: What prices are in.
        nodes: Those that are connected: more of a pool than its slots is never held, unless it grows.
        quota: Slots that its owner may hold at a time; None: any number.
    """
    slots = slots_per_trial(config)
    resources, searcher = config.get("resources") or {}, config.get("searcher") or {}
    pool = pools.of(pools.named(resources.get("resource_pool") or "", slots))
    if pool is None or not pool.price or not slots or config.get("unmanaged"):
        return None
    trials = trials_total(dict(config))
    together = searcher.get("max_concurrent_trials") or trials
    if resources.get("max_slots") is not None:
        most = max(1, int(resources["max_slots"]) // slots)
        together = most if together is None else min(together, most)
    if together is not None and trials is not None:
        together = min(together, trials)
    held = None if together is None else together * slots
    here = sum(len(node.slots) for node in nodes if node.pool == pool.name)
    if here >= slots and pool.provider is None:
        held = here if held is None else min(held, here)
    if quota is not None:
        quota -= quota % slots
        held = quota if held is None else min(held, quota)
    hours = []
    if (budget := (searcher.get("budget") or {}).get("slot_hours")) is not None:
        hours.append(float(budget))
    if trials is not None and resources.get("max_time") is not None:
        hours.append(trials * slots * float(resources["max_time"]) / 3600)
    return CostView(
        pool=pool.name,
        price=pool.price,
        per_hour=None if held is None else held * pool.price,
        at_most=min(hours) * pool.price if hours else None,
        currency=currency,
    )
