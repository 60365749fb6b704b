"""The config of a user task, completed: what its workspace and the cluster give, checked like what it says itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import Problem
from detlab.schemas import expconf, taskconf
from detlab.schemas.runtimes import DOCKER
from detlab.schemas.taskwire import TaskKind
from detlab.schemas.wire import GivenView, ProblemView
from detlab_hub.core.scheduling import DEFAULT_PRIORITY
from detlab_hub.services.admission import feasibility
from detlab_hub.services.admission.configs.layers import ConfigLayers, layers_for, with_sources
from detlab_hub.services.admission.destinations import destination_of
from detlab_hub.services.admission.preparing import named_images
from detlab_hub.services.base import references
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.parts import TASKS
from detlab_hub.services.base.context import ServiceContext


@dataclass(frozen=True)
class PreparedTask:
    """A complete config.

    Attributes:
        config: With all defaults.
        warnings: Of its checks.
        given: The values that its submitter has not given.
        workspace_id: Where it is to lie; None: the personal workspace of its owner, if that is not there yet.
    """

    config: dict[str, Any]
    warnings: Sequence[ProblemView]
    given: Sequence[GivenView]
    workspace_id: int | None


async def prepare(
    context: ServiceContext, caller: Caller, kind: TaskKind, raw: Any, text: str | None, template: str | None = None
) -> PreparedTask:
    """Complete and check the config of a task, a mapping or its YAML text.

    Raises:
        ConfigError: With every mistake; or there is no such workspace for the caller, or no such project in it; or a
            config policy does not allow it.
        Forbidden: The caller may read the workspace, and put nothing into it.
        NotFound: There is no such template for the caller.
    """
    problems: list[Problem] = []
    if raw is None and text is not None:
        raw, problems = expconf.load_yaml(text, "config")

    def look(s: Session) -> ConfigLayers:
        return layers_for(s, caller, raw or {}, context.settings, TASKS, template)

    layers = await context.read(look)
    config, warnings, given = _completed(kind, raw, problems, layers, context)
    place = await context.read(lambda s: destination_of(s, caller, config).workspace_id)
    return PreparedTask(config, warnings, given, place)


def _completed(
    kind: TaskKind, value: Any, problems: list[Problem], layers: ConfigLayers, context: ServiceContext
) -> tuple[dict[str, Any], list[ProblemView], list[GivenView]]:
    """Return the complete config of a task, the warnings, and the values that its submitter has not given."""
    problems = [*problems, *taskconf.check(value, kind)]
    # A template may say what a command runs.
    _refuse([one for one in problems if layers.layers == () or one.path != "entrypoint"])  # merge trusts its input
    problems = [one for one in problems if one.level == "warning"]
    laid = layers.under(value or {}, lambda config: _slots(config, kind))
    value, fixed = layers.rules.over(laid.config)
    found = with_sources(taskconf.check(value, kind), [*laid.views, *fixed])
    problems += [one for one in found if one not in problems]
    _refuse(problems)
    config = taskconf.parse(value, kind)
    made = config.model_dump(mode="json")
    problems += references.too_many(made)
    _refuse(problems)
    made["runtime"] = config.runtime or context.settings.default_runtime
    problems += taskconf.unsupported(config, made["runtime"], kind)
    asked = (value or {}).get("environment") or {}
    if "image" not in asked:
        images = {**dict.fromkeys(("cpu", "cuda", "rocm"), ""), **context.settings.default_image}
        if made["runtime"] == DOCKER and not any(images.values()):
            hint = "name one (--image NAME), or ask the operator for c.DetHub.default_image"
            problem = Problem("environment.image", "is required for a container: this cluster has no default", hint)
            raise taskconf.refused([problem])
        made["environment"]["image"] = images
    else:
        made["environment"]["image"] = named_images(asked["image"])
    pools = context.settings.pools
    pool = pools.of(pools.named(made["resources"]["resource_pool"], _slots(made, kind)))
    given = [*laid.views, *fixed]
    given += layers.rules.complete(made, DEFAULT_PRIORITY if pool is None else pool.priority)
    layers.rules.check(made)
    return made, [ProblemView.model_validate(p.to_dict()) for p in problems if p.level == "warning"], given


def _slots(config: Mapping[str, Any], kind: TaskKind) -> int:
    slots = (config.get("resources") or {}).get("slots")
    return taskconf.DEFAULT_SLOTS[kind] if slots is None else int(slots)


def _refuse(problems: Sequence[Problem]) -> None:
    if expconf.errors_of(problems):
        raise taskconf.refused(expconf.in_order(problems))


async def feasible(
    context: ServiceContext, caller: Caller, kind: TaskKind, prepared: PreparedTask
) -> list[ProblemView]:
    """Return warnings about a task that no agent can run for now.

    Raises:
        ResourcesError: No agent could ever run it, or a quota is too low.
        ConfigError: None could ever run its image.
    """
    what = f"this {kind.value.replace('_', ' ')}"
    mounts = context.settings.governed_mounts
    required = feasibility.of_task(
        caller.name, caller.groups, prepared.config, what, prepared.workspace_id, mounts=mounts
    )
    return [ProblemView.model_validate(problem.to_dict()) for problem in await feasibility.check(context, required)]
