"""What is laid under a config, the nearest first: a template with what it stands on, workspace, pool, cluster.

A config's own values come first, then those of each layer in this order; config policies are merged over all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import ConfigError, Conflict, Forbidden, NotFound, Problem
from detlab.schemas import expconf
from detlab.schemas.expconf import container_defaults
from detlab.schemas.wire import GivenView
from detlab.schemas.wire.configs.templates import CLUSTER as OF_CLUSTER
from detlab_hub.core.rights import Action
from detlab_hub.services.admission.destinations import destination_of
from detlab_hub.services.admission.workspace_defaults import config_of, container_defaults_of, defaults_of
from detlab_hub.services.base.access import no_such, person, workspace_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.parts import EXPERIMENT, TASKS, fitting, masked
from detlab_hub.services.base.configs.rules import ConfigRules, rules_for
from detlab_hub.services.base.settings import Settings
from detlab_hub.store.queries import workspaces
from detlab_hub.store.queries.configs import templates
from detlab_hub.store.tables import CLUSTER, TemplateRow, WorkspaceRow

MOST_DEEP = 16
"""Templates that stand on one another."""
_ANEW, _ANEW_OF_ENVIRONMENT = ("checkpoint_storage",), ("registry_auth",)
"""Blocks of a default template that have credentials, which views mask, so that a fork has them from the template."""
_NOT_FOR_TASKS = frozenset({"checkpoint_storage", *container_defaults.NOT_FOR_TASKS})


@dataclass(frozen=True)
class ConfigLayer:
    """A part of a config that is laid under another.

    Attributes:
        part: The part.
        source: Where it comes from, for people: `template gpu`, `workspace ada/vision`, `pool a100`, `the cluster`.
        containers: Whether of it each runtime only takes what it knows.
    """

    part: Mapping[str, Any]
    source: str
    containers: bool = False


@dataclass(frozen=True)
class ConfigLayers:
    """What a config of the caller's is laid between.

    Attributes:
        settings: Of the master, with the defaults of pools and of the cluster.
        rules: The config policies that are merged over it.
        layers: Of its template and its workspace, the nearest first.
    """

    settings: Settings
    rules: ConfigRules
    layers: tuple[ConfigLayer, ...] = ()

    def under(self, raw: Mapping[str, Any], slots: Callable[[Mapping[str, Any]], int]) -> LaidConfig:
        """Return a config with all layers under it. It must have passed the check, as merging trusts its input.

        Args:
            raw: The config as it was written.
            slots: Tells how many slots one of its tasks needs, by which its pool is found.
        """
        laid = LaidConfig(dict(raw))
        for layer in self.layers:
            self._lay(laid, layer)
        pools = self.settings.pools
        pool = pools.of(
            pools.named(str((laid.config.get("resources") or {}).get("resource_pool") or ""), slots(laid.config))
        )
        if pool is not None and pool.task_container_defaults:
            self._lay(laid, ConfigLayer(pool.task_container_defaults, f"pool {pool.name}", containers=True))
        if self.settings.task_container_defaults:
            self._lay(laid, ConfigLayer(self.settings.task_container_defaults, "the cluster", containers=True))
        return laid

    def _lay(self, laid: LaidConfig, layer: ConfigLayer) -> None:
        part = fitting(layer.part, self.rules.workload)
        if self.rules.workload == TASKS:
            part = {key: value for key, value in part.items() if key not in _NOT_FOR_TASKS}
        if layer.containers:
            part = container_defaults.for_runtime(
                part, str(laid.config.get("runtime") or self.settings.default_runtime)
            )
        if part:
            laid.views += given_views(laid.config, part, layer.source)
            laid.config = expconf.merge(laid.config, part)

    def blocks(self, key: str) -> Iterator[Mapping[str, Any]]:
        """Yield the blocks of a key that layers give, whose secrets are given to each config anew."""
        pools = (pool.task_container_defaults for pool in self.settings.pools.by_name.values())
        for part in (*(layer.part for layer in self.layers), *pools, self.settings.task_container_defaults):
            if isinstance(block := part.get(key), Mapping):
                yield block


@dataclass
class LaidConfig:
    """A config with what was laid under it.

    Attributes:
        config: The config.
        views: The values that it did not have itself.
    """

    config: dict[str, Any]
    views: list[GivenView] = field(default_factory=list)


def layers_for(
    s: Session,
    caller: Caller,
    raw: Any,
    settings: Settings,
    workload: str,
    template: str | None,
    *,
    forked: bool = False,
) -> ConfigLayers:
    """Load what a config of the caller's is laid between.

    Of a config whose place is wrong, only what needs no place: it is refused later, with all that is wrong with it.

    Args:
        s: A session.
        caller: Who submits.
        raw: The config as it was written.
        settings: Of the master.
        workload: `experiment` or `tasks`.
        template: A template as people name it; None: the default one of the workspace; empty: none.
        forked: Whether it began as the config of an earlier experiment, which a default template was laid under.

    Raises:
        NotFound: There is no such template for the caller.
        Forbidden: They may only read it.
    """
    place = _workspace(s, caller, raw)
    layers: list[ConfigLayer] = []
    if template:
        layers += layers_of(s, template_for(s, caller, template, place))
    elif template is None and place is not None and workload == EXPERIMENT:
        name = defaults_of(place).template
        row = templates.named(s, place.id, name) if name else None
        found = [] if row is None else layers_of(s, row)
        layers += [_for_fork(one) for one in found] if forked else found
    if place is not None:
        defaults = defaults_of(place)
        named = (
            f"workspace {place.owner}/{place.name}" if place.kind != workspaces.PERSONAL else "workspace Uncategorized"
        )
        layers += [
            ConfigLayer(config_of(defaults), named),
            ConfigLayer(container_defaults_of(place), named, containers=True),
        ]
    rules = rules_for(s, None if place is None else place.id, workload)
    return ConfigLayers(settings, rules, tuple(layer for layer in layers if layer.part))


def _for_fork(layer: ConfigLayer) -> ConfigLayer:
    """Return what a default template gives to a fork: credentials anew, and nothing that the earlier one ran without.

    A fork may leave out what equals the defaults (`%det_fork` does), which it means as the earlier one had it.
    """
    part = {key: layer.part[key] for key in (*_ANEW, "environment") if key in layer.part}
    if "environment" in part:
        environment = part.pop("environment") or {}
        part |= {"environment": {key: environment[key] for key in _ANEW_OF_ENVIRONMENT if key in environment}}
    return replace(layer, part={key: block for key, block in part.items() if block})


def _workspace(s: Session, caller: Caller, raw: Any) -> WorkspaceRow | None:
    if not isinstance(raw, Mapping) or not all(isinstance(raw.get(key) or "", str) for key in ("workspace", "project")):
        return None
    try:
        return destination_of(s, caller, dict(raw)).workspace
    except (ConfigError, Forbidden, NotFound):
        return None


# --- templates


def template_for(s: Session, caller: Caller, name: str, place: WorkspaceRow | None) -> TemplateRow:
    """Load the template that people mean, which the caller may use.

    Args:
        s: A session.
        caller: Who asks.
        name: `WORKSPACE:NAME`, `cluster:NAME`; or a name alone: of the workspace `place`, of the caller's personal one,
            or of the cluster, in this order.
        place: Where the caller is to put something, and so may.

    Raises:
        NotFound: There is none for the caller.
        Forbidden: They may only read it.
    """
    where, colon, rest = name.rpartition(":")
    if colon:
        row = templates.named(s, place_of(s, caller, where, Action.PROJECT_CREATE), rest)
    else:
        personal = workspaces.of_owner(s, person(caller).name, workspaces.NOWHERE)
        ids = [one.id for one in (place, personal) if one is not None]
        row = next((one for key in (*ids, CLUSTER) if (one := templates.named(s, key, name)) is not None), None)
    if row is None:
        raise no_template(name)
    return row


def no_template(name: str) -> NotFound:
    """Make the error for a template that is not there, or not for this caller."""
    return no_such(f"there is no template {name[:300]!r}", exists=False, hint="det template list")


def place_of(s: Session, caller: Caller, workspace: str, action: Action | None = None) -> int:
    """Return the id of where templates lie: `cluster`, or a workspace in which the caller may do what `action` says.

    Raises:
        NotFound: There is no such workspace for the caller, or they have no personal one yet.
        Forbidden: They may read it, and not do that.
    """
    if workspace == OF_CLUSTER:
        return CLUSTER
    if not workspace or workspaces.key_of(workspace) == workspaces.key_of(workspaces.NOWHERE):
        row = workspaces.of_owner(s, person(caller).name, workspaces.NOWHERE)
        return -1 if row is None else row.id
    return workspace_for(s, caller, workspace, action).id


def chain_of(s: Session, row: TemplateRow) -> list[TemplateRow]:
    """Return a template and those that it stands on, the nearest first.

    Raises:
        Conflict: They stand on one another in a loop, or too many do.
    """
    chain = [row]
    while (base_id := chain[-1].base_id) is not None:
        base = s.get(TemplateRow, base_id)
        if base is None:
            break
        if base in chain or len(chain) >= MOST_DEEP:
            names = " → ".join(repr(one.name) for one in (*chain, base))
            why = "stand on one another in a loop" if base in chain else f"are more than {MOST_DEEP}, one on another"
            raise Conflict(f"the templates {names} {why}", hint="det template set NAME FILE --base ANOTHER")
        chain.append(base)
    return chain


def layers_of(s: Session, row: TemplateRow) -> list[ConfigLayer]:
    """Return a template with what it stands on as layers."""
    return [ConfigLayer(one.config, f"template {one.name}") for one in chain_of(s, row)]


def merged(s: Session, row: TemplateRow) -> dict[str, Any]:
    """Return a template with what it stands on under it."""
    made: dict[str, Any] = {}
    for one in chain_of(s, row):
        made = expconf.merge(made, one.config)
    return made


# --- what is shown


def given_views(raw: Mapping[str, Any], part: Mapping[str, Any], source: str) -> list[GivenView]:
    """Return which values a part gives to a config that does not have them, credentials masked."""
    shown = masked(dict(part))
    return [GivenView(path=path, value=value, source=source) for path, value in _lacking(raw, shown, "")]


def _lacking(raw: Any, given: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in given.items():
        mine = raw.get(key) if isinstance(raw, Mapping) else None
        if isinstance(value, Mapping):
            yield from _lacking(mine, value, f"{path}{key}.")
        elif mine is None or isinstance(value, list):
            yield f"{path}{key}", value


def with_sources(problems: Sequence[Problem], given: Sequence[GivenView]) -> list[Problem]:
    """Say of mistakes in values that the submitter has not given where these come from."""
    sources = {one.path: one.source for one in given}
    found = []
    for one in problems:
        source = sources.get(one.path)
        hint = f"it comes from {source}" + (f"; {one.hint}" if one.hint else "")
        found.append(one if source is None else Problem(one.path, one.message, hint, one.level))
    return found


def pool_problem(settings: Settings, part: Mapping[str, Any], path: str = "") -> Sequence[Problem]:
    """Return what is wrong with the pool that a part names."""
    resources = part.get("resources")
    name = resources.get("resource_pool") if isinstance(resources, Mapping) else None
    if not name or settings.pools.of(str(name)) is not None:
        return []
    there = ", ".join(settings.pools.by_name)
    return [Problem(f"{path}resources.resource_pool", f"there is no pool {str(name)[:80]!r}", f"one of {there}")]
