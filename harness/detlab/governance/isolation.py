"""Sources that train parameters of their own alone: what that needs of a policy, and what can then be taken out again.

A source is isolated if all that it may train is closed to every other sample, and lies in modules that hold nothing
else. Those modules give zeros for other samples (`detlab.pytorch.governance.gates`), and so nothing else depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from detlab.governance.refusals import GovernanceError, Refusal

if TYPE_CHECKING:
    from detlab.governance.ledger import MatrixRecord
    from detlab.governance.policy import Policy

ISOLATED = "isolated"
Names = Iterable[Sequence[str]]
"""Of each parameter: the first, by which the matrix calls it, and those of a tied one."""
_NAMED = 3
_ASK_BEFORE = (
    "only what `level: isolated` has kept apart from the first step on can be taken out:"
    " docs/how-to/govern-what-sources-train.md"
)


def isolated_sources(matrix: MatrixRecord) -> list[str]:
    """Return the sources of a matrix that are isolated in something that they may train."""
    return [
        name
        for name, scales, levels in zip(matrix.sources, matrix.scales, matrix.levels, strict=True)
        if any(scale > 0 and level == ISOLATED for scale, level in zip(scales, levels, strict=True))
    ]


def isolation_problems(policy: Policy, names: Names, matrix: MatrixRecord) -> list[Refusal]:
    """Return why the level `isolated` cannot be held for a model: LEVEL, CLIP; nothing if no rule asks for it."""
    sources = isolated_sources(matrix)
    if not sources:
        return []
    found = []
    if policy.clip == "global":
        found.append(Refusal("CLIP", "governance.clip is global, which couples all sources through one norm"))
    if policy.enforce != "strict":
        found.append(Refusal("LEVEL", "`isolated` is a promise, and `enforce: audit` lets training go on without it"))
    for source in sources:
        own = _closed_to_others(matrix, source)
        found += own
        if not own:
            found += _not_in_modules(names, source, set(matrix.reached(source)))
    return found


def _closed_to_others(matrix: MatrixRecord, source: str) -> list[Refusal]:
    """Return LEVEL for what a source trains at another level, and for what another sample trains, too."""
    row = matrix.sources.index(source)
    names = [name for name, _ in matrix.parameters]
    direct = [
        name
        for name, scale, level in zip(names, matrix.scales[row], matrix.levels[row], strict=True)
        if scale > 0 and level != ISOLATED
    ]
    if direct:
        what = f"{source!r} is isolated in a part of what it trains, and not in {_listed(direct)}"
        return [Refusal("LEVEL", f"{what}: through that it would reach all others")]
    own = set(matrix.reached(source))
    for other in (*(name for name in matrix.sources if name != source), ""):
        if shared := [name for name, scale in matrix.row(other).items() if scale > 0 and name in own]:
            who = repr(other) if other else "samples without a declared source"
            return [Refusal("LEVEL", f"{source!r} is isolated in {_listed(shared)}, which {who} may train, too")]
    return []


def _not_in_modules(names: Names, source: str, own: set[str]) -> Iterator[Refusal]:
    owners = _owners(names, dict.fromkeys(own, source))
    loose = [name for name, owner in owners.items() if owner == source and _module_of(name, owners) is None]
    if loose:
        what = f"{source!r} is isolated in {_listed(loose)}, which is in no module of its own"
        yield Refusal("LEVEL", f"{what}: put it into one, whose output is added to that of others")


def _owners(names: Names, owned: Mapping[str, str]) -> dict[str, str]:
    """Return the source whose own each parameter is, by all its names; empty for what is nobody's own."""
    return {name: owned.get(one[0], "") for one in names for name in one}


def _module_of(name: str, owners: Mapping[str, str]) -> str | None:
    """Return the outermost module that holds a parameter and nothing of another owner."""
    parts = name.split(".")[:-1]
    for count in range(len(parts) + 1):
        module = ".".join(parts[:count])
        inside = {owner for other, owner in owners.items() if not module or other.startswith(f"{module}.")}
        if len(inside) == 1:
            return module
    return None


def isolated_modules(matrix: MatrixRecord, names: Names) -> dict[str, str]:
    """Return the modules that give zeros for all other samples: name -> the source whose own they are.

    The name of a whole model is empty, with several models `model_0` and so on.

    Args:
        matrix: Of a plan.
        names: `Plan.names`.
    """
    owned = {name: source for source in isolated_sources(matrix) for name in matrix.reached(source)}
    owners = _owners(names, owned)
    found: dict[str, str] = {}
    for name, owner in owners.items():
        if owner and (module := _module_of(name, owners)) is not None:
            found[module] = owner
    return found


def own_parameters(source: str, matrices: Iterable[MatrixRecord]) -> list[str]:
    """Return the parameters that a source alone has ever trained, so that without them it has left nothing.

    Args:
        source: Its name.
        matrices: All under which anything was trained; see `LearntFrom` of the client.

    Raises:
        GovernanceError: LEVEL: under one of them it was not isolated, or others have trained what is its own.
    """
    listed = list(matrices)
    own: dict[str, None] = {}
    problems: list[Refusal] = []
    sound = []
    for one in listed:
        if source not in one.sources or not one.reached(source):
            sound.append(one)
            continue
        own |= dict.fromkeys(one.reached(source))
        found = list(_not_asked(one, source)) or _closed_to_others(one, source)
        problems += found
        sound += [] if found else [one]
    for one in sound:  # of the others it is said already
        for other in (*one.sources, ""):
            if other != source and (shared := [name for name in one.reached(other) if name in own]):
                who = repr(other) if other else "samples without a declared source"
                problems.append(Refusal("LEVEL", f"{who} has trained {_listed(shared)}, too, under another matrix"))
    if problems:
        headline = f"{source!r} cannot be taken out: train again without it, from new weights:"
        error = GovernanceError(list({one.message: one for one in problems}.values()), headline)
        error.hint = _ASK_BEFORE
        raise error
    return list(own)


def is_private(matrix: MatrixRecord) -> bool:
    """Return whether a matrix is that of a whole training at the level `dp`."""
    return bool(matrix.levels) and all(level == "dp" for row in matrix.levels for level in row)


def _not_asked(matrix: MatrixRecord, source: str) -> Iterator[Refusal]:
    if source not in isolated_sources(matrix):
        reached = matrix.reached(source)
        level = "dp" if is_private(matrix) else "direct"
        yield Refusal("LEVEL", f"{source!r} has trained {_listed(reached)} at the level {level}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
