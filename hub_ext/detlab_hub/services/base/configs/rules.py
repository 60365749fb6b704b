"""Config policies, as the one seam through which every config and every change of one goes.

An invariant is merged over what is submitted, and a change of what it sets is refused. A limit is what a config gets
that says nothing, and refuses what goes beyond it. Of two policies the cluster's wins over the workspace's, both over
the user. What makes or changes a config asks here, in the transaction that stores it;
`tests/integration/services/configs/test_policies_everywhere.py` walks all of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Problem
from detlab.pasted import word
from detlab.schemas import expconf, taskconf
from detlab.schemas.expconf.raw.paths import Path, render
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import GivenView
from detlab_hub.services.base.configs.current import current_config, steered
from detlab_hub.services.base.configs.parts import EXPERIMENT, KINDS, TASKS, at, for_kinds, leaves, masked, put
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.configs import policies
from detlab_hub.store.tables import CLUSTER, ConfigPolicyRow, ExperimentRow, TaskRow

REFUSED = "a config policy does not allow this"
MAX_SLOTS, PRIORITY = ("resources", "max_slots"), ("resources", "priority")


@dataclass(frozen=True)
class ConfigRule:
    """One policy.

    Attributes:
        of: Whose it is: `the cluster`, or `workspace ada/vision`.
        workspace: The workspace, as `OWNER/NAME`; empty: the cluster.
        invariant: What is merged over configs.
        max_slots: Slots of an experiment or a task; None: any number.
        priority_limit: The smallest number that a priority may have; None: any.
    """

    of: str
    workspace: str = ""
    invariant: dict[str, Any] = field(default_factory=dict)
    max_slots: int | None = None
    priority_limit: int | None = None


@dataclass(frozen=True)
class ConfigRules:
    """The policies that hold at one place for one kind of work, the cluster's first."""

    workload: str
    rules: tuple[ConfigRule, ...] = ()

    # --- what is submitted

    def over(self, config: Mapping[str, Any]) -> tuple[dict[str, Any], list[GivenView]]:
        """Return a config with the invariants merged over it, and the values that these change.

        What an invariant says of a search method or a type of storage without saying which is for those that have such
        a key; which one it is, is known first.
        """
        made, views = dict(config), dict[str, GivenView]()
        kinds = list(self._kinds())
        for rule, invariant in [*kinds, *((rule, rule.invariant) for rule in reversed(self.rules))]:
            # The cluster's comes last, and so over that of the workspace.
            fitting = for_kinds(invariant, made)
            if not fitting:
                continue
            before, made = made, expconf.merge(fitting, _less(made, fitting))
            for place, value in leaves(masked(fitting)):
                if at(before, place) != at(made, place):
                    path = render(place)
                    views[path] = GivenView(path=path, value=value, source=f"config policy of {rule.of}")
        return made, list(views.values())

    def complete(self, config: dict[str, Any], pool_priority: int) -> list[GivenView]:
        """Give a complete config the limits where it says nothing; return what was given."""
        if config.get("unmanaged"):
            return []
        given, resources = [], dict(config.get("resources") or {})
        slots, best = self._slots(), self._priority()
        if slots is not None and self.workload == EXPERIMENT and resources.get("max_slots") is None:
            resources["max_slots"] = slots.max_slots
            given.append(_given(MAX_SLOTS, slots.max_slots, slots))
        limit = None if best is None else best.priority_limit
        if best is not None and limit is not None and resources.get("priority") is None and pool_priority < limit:
            resources["priority"] = limit
            given.append(_given(PRIORITY, limit, best))
        if given:
            config["resources"] = resources
        return given

    def check(self, config: Mapping[str, Any]) -> None:
        """Check that a complete config keeps to the limits.

        Raises:
            ConfigError: It does not; each problem has the rule's own text.
        """
        if config.get("unmanaged"):
            return
        resources = config.get("resources") or {}
        key = "slots" if self.workload == TASKS else "slots_per_trial"
        slots = resources.get(key)
        default = 0 if self.workload == TASKS else 1
        self._refuse(
            [
                *self._over_slots(f"resources.{key}", default if slots is None else int(slots)),
                *self._over_slots("resources.max_slots", resources.get("max_slots") or 0),
                *self._over_priority(resources.get("priority")),
            ]
        )

    # --- what is there, and is to change

    def check_change(self, config: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
        """Check a change of a config that is there.

        Args:
            config: The config, complete.
            changes: The new values by path, such as `searcher.max_trials`.

        Raises:
            ConfigError: An invariant sets one of these to something else, or a value is beyond a limit.
        """
        after = dict(config)
        for path, value in changes.items():
            after = put(after, tuple(path.split(".")), value)
        self._refuse(
            [
                *self._differing(after, [tuple(path.split(".")) for path in changes]),
                *self._over_slots("resources.max_slots", changes.get("resources.max_slots") or 0),
                *self._over_priority(changes.get("resources.priority")),
            ]
        )

    def check_fixed(self, paths: Sequence[str]) -> None:
        """Check that no invariant sets any of these, whatever it sets it to.

        Raises:
            ConfigError: One does.
        """
        wanted = [tuple(path.split(".")) for path in paths]
        found = dict(_first(self._fixed(), wanted))
        self._refuse([self._problem(rule, place, value) for place, (rule, value) in found.items()])

    def fixes(self, path: str) -> bool:
        """Whether an invariant sets this, such as `searcher.max_trials`."""
        return any(_first(self._fixed(), [tuple(path.split("."))]))

    def hold(self, s: Session, row: ExperimentRow | TaskRow) -> None:
        """Check all of an experiment or a task that goes on, or comes to lie here; its open number of slots is limited.

        What counts is how it is now: what was changed since it was submitted was perhaps changed elsewhere. As at a
        submit, invariants hold for trials that are evaluated by hand too, and limits do not: those have no slots.

        Raises:
            ConfigError: It does not keep to a policy.
        """
        self.limit_open(row)
        config, places = current_config(row), [place for _, place, _ in self._fixed()]
        if isinstance(row, ExperimentRow) and any(place[0] in ("searcher", "hyperparameters") for place in places):
            config = steered(s, row, config)
        problems = self._differing(config, places)
        try:
            self.check(config)
        except ConfigError as error:
            problems += error.problems
        self._refuse(problems)

    def limit_open(self, row: ExperimentRow | TaskRow) -> None:
        """Give an experiment that has no number of slots of its own the limit, as a new one would have it."""
        slots = self._slots()
        managed = isinstance(row, ExperimentRow) and not row.config.get("unmanaged")
        if slots is not None and managed and row.max_slots is None:
            row.max_slots = slots.max_slots

    def hold_slots(self, row: ExperimentRow) -> None:
        """Hold the slots of an experiment, which is to get or to run more trials, to the limit.

        Raises:
            ConfigError: Its own number is beyond it, or each trial is.
        """
        self.limit_open(row)
        resources = row.config.get("resources") or {}
        if not row.config.get("unmanaged"):
            self.check({"resources": {**resources, "max_slots": row.max_slots, "priority": None}})

    # --- how

    def _slots(self) -> ConfigRule | None:
        """Return the rule with the fewest slots."""
        limited = [rule for rule in self.rules if rule.max_slots is not None]
        return min(limited, key=lambda rule: rule.max_slots or 0, default=None)

    def _priority(self) -> ConfigRule | None:
        limited = [rule for rule in self.rules if rule.priority_limit is not None]
        return max(limited, key=lambda rule: rule.priority_limit or 0, default=None)

    def _over_slots(self, path: str, asked: int) -> Iterator[Problem]:
        rule = self._slots()
        if rule is not None and rule.max_slots is not None and asked > rule.max_slots:
            said = f"constraints.resources.max_slots: {rule.max_slots}"
            yield Problem(path, f"is {asked}, and the config policy of {rule.of} says {said}", self._where(rule))

    def _over_priority(self, asked: int | None) -> Iterator[Problem]:
        rule = self._priority()
        if rule is not None and asked is not None and asked < (rule.priority_limit or 0):
            said = f"constraints.priority_limit: {rule.priority_limit}"
            why = f"is {asked}, and the config policy of {rule.of} says {said} (smaller comes first)"
            yield Problem("resources.priority", why, self._where(rule))

    def _kinds(self) -> Iterator[tuple[ConfigRule, dict[str, Any]]]:
        """Yield which search method and type of storage invariants set."""
        for block, (key, _) in KINDS.items():
            found = ((rule, at(rule.invariant, (block, key))) for rule in self.rules)
            for rule, kind in [one for one in found if one[1] is not None][:1]:
                yield rule, {block: {key: kind}}

    def _fixed(self) -> Iterator[tuple[ConfigRule, Path, Any]]:
        """Yield what invariants set, those that win first."""
        for rule in self.rules:
            for place, value in leaves(masked(rule.invariant)):
                yield rule, place, value

    def _differing(self, config: Mapping[str, Any], places: Sequence[Path]) -> list[Problem]:
        """Return where a config is not what the invariants make of it, among these places."""
        found = dict(_first(self._fixed(), places))
        if not found:
            return []
        laid, own = self._spelt(self.over(config)[0]), self._spelt(dict(config))
        return [
            self._problem(rule, place, value)
            for place, (rule, value) in found.items()
            if _comparable(place, at(laid, place)) != _comparable(place, at(own, place))
        ]

    def _spelt(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return a config with sizes, shorthands and ranges in the form in which they are stored."""
        try:
            if self.workload == EXPERIMENT:
                return expconf.resolve(config)
            kind = TaskKind.COMMAND if config.get("entrypoint") else TaskKind.NOTEBOOK
            return taskconf.parse(config, kind).model_dump(mode="json")
        except ConfigError:
            return config

    def _problem(self, rule: ConfigRule, place: Path, value: Any) -> Problem:
        said = f"invariant_config.{render(place)}: {value}"
        why = f"cannot be set to this: the config policy of {rule.of} says {said}"
        return Problem(render(place), why, self._where(rule))

    def _where(self, rule: ConfigRule) -> str:
        more = f" --workspace {word(rule.workspace)}" if rule.workspace else ""
        return f"det config-policies describe {self.workload}{more}"

    def _refuse(self, problems: Sequence[Problem]) -> None:
        if problems:
            raise ConfigError(expconf.in_order(problems), REFUSED)


def rules_for(s: Session, workspace_id: int | None, workload: str) -> ConfigRules:
    """Load the policies that hold in a workspace; None: in a personal one, where only the cluster's do."""
    rows = policies.holding(s, workspace_id, workload)
    names = workspaces.references(s, {row.workspace_id for row in rows} - {CLUSTER})
    return ConfigRules(workload, tuple(rule_of(row, names.get(row.workspace_id, "")) for row in rows))


def rule_of(row: ConfigPolicyRow, workspace: str) -> ConfigRule:
    """Return the policy of a row."""
    limits = row.constraints.get("resources") or {}
    return ConfigRule(
        of=f"workspace {workspace}" if workspace else "the cluster",
        workspace=workspace,
        invariant=row.invariant_config,
        max_slots=limits.get("max_slots"),
        priority_limit=row.constraints.get("priority_limit"),
    )


def rules_of(s: Session, row: ExperimentRow | TaskRow) -> ConfigRules:
    """Load the policies that an experiment or a user task is held to."""
    return rules_for(s, row.workspace_id, EXPERIMENT if isinstance(row, ExperimentRow) else TASKS)


def _comparable(place: Path, value: Any) -> Any:
    """Return a value without the order that has no meaning."""
    return set(value or ()) if place == ("labels",) else value


def _given(place: Path, value: Any, rule: ConfigRule) -> GivenView:
    return GivenView(path=render(place), value=value, source=f"config policy of {rule.of}")


def _first(
    fixed: Iterator[tuple[ConfigRule, Path, Any]], places: Sequence[Path]
) -> Iterator[tuple[Path, tuple[ConfigRule, Any]]]:
    """Yield what invariants set at, below or above some places; of two that set the same, the one that wins."""
    seen: set[Path] = set()
    for rule, place, value in fixed:
        if place not in seen and any(place[: len(one)] == one[: len(place)] for one in places):
            seen.add(place)
            yield place, (rule, value)


def _less(config: Any, invariant: Any) -> Any:
    """Return a config without the entries of lists that an invariant adds: merged twice, they would stand twice."""
    if isinstance(config, Mapping) and isinstance(invariant, Mapping):
        return {key: _less(value, invariant[key]) if key in invariant else value for key, value in config.items()}
    if isinstance(config, list) and isinstance(invariant, list):
        return [entry for entry in config if entry not in invariant]
    return config
