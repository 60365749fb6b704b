"""Compile a policy against the parameters of a model: the matrix S, its hash, and what is wrong with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from detlab.governance.isolation import isolation_problems
from detlab.governance.ledger import MatrixRecord
from detlab.governance.policy import Policy, SourceRule
from detlab.governance.refusals import GovernanceError, Refusal
from detlab.governance.targets import target_problems

BATCH_NORMS = (
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "SyncBatchNorm",
)
"""Layers that mix the samples of a batch."""
OVER_RANKS = ("SyncBatchNorm",)
"""Those that mix the samples of all ranks, which are of several sources even where each rank has one at a time."""


@dataclasses.dataclass(frozen=True, slots=True)
class TrainedParameter:
    """One parameter that is trained.

    Attributes:
        name: Its full name in the model; of a tied one, the first.
        shape: Its shape.
        aliases: The further names of a tied parameter.
        kind: Class of the module that holds it; empty if that is not known.
    """

    name: str
    shape: tuple[int, ...]
    aliases: tuple[str, ...] = ()
    kind: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What each source may train: the matrix S.

    Attributes:
        policy: The policy.
        parameters: The columns, in the model's order.
        scales: S, by source and parameter: factors of gradients.
        levels: Guarantees, likewise.
        default: The row of samples without a declared source; None if they are refused.
        warnings: What is odd.
        s_hash: SHA-256 of the matrix with names and shapes, as `sha256:…`.
    """

    policy: Policy
    parameters: tuple[TrainedParameter, ...]
    scales: tuple[tuple[float, ...], ...]
    levels: tuple[tuple[str, ...], ...]
    default: tuple[float, ...] | None
    warnings: tuple[Refusal, ...]
    s_hash: str

    @property
    def policy_hash(self) -> str:
        """That of the policy."""
        return self.policy.policy_hash

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the rows."""
        return tuple(source.name for source in self.policy.sources)

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """All names of each parameter."""
        return tuple((one.name, *one.aliases) for one in self.parameters)

    @property
    def matrix(self) -> MatrixRecord:
        """S alone, as it is recorded."""
        shapes = tuple((one.name, one.shape) for one in self.parameters)
        return MatrixRecord(self.sources, shapes, self.scales, self.levels, self.default, self.policy.normalize)

    def column(self, index: int) -> tuple[float, ...]:
        """Return the scales of one parameter, by source, with that of samples without a declared source at the end."""
        column = tuple(row[index] for row in self.scales)
        return column if self.default is None else (*column, self.default[index])

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        targets = {name: {one.layers: one.share for one in own} for name, own in self.policy.targets.items()}
        return {
            "policy_hash": self.policy_hash,
            "s_hash": self.s_hash,
            "enforce": self.policy.enforce,
            "sources": list(self.sources),
            "parameters": [{"name": one.name, "shape": list(one.shape)} for one in self.parameters],
            "scales": [list(row) for row in self.scales],
            "levels": [list(row) for row in self.levels],
            "default": None if self.default is None else list(self.default),
            **({"targets": targets} if targets else {}),
            "warnings": [str(one) for one in self.warnings],
        }


def compile_policy(policy: Policy, parameters: Iterable[TrainedParameter], *, kinds: Iterable[str] = ()) -> Plan:
    """Return the plan of a policy for one model.

    Args:
        policy: The policy.
        parameters: What is trained, in the model's order.
        kinds: Classes of all modules of the model, if known: those that mix samples are refused.

    Raises:
        GovernanceError: All that is wrong: parameters that no rule matches (UNMATCHED) or nothing may train (STARVED),
            tied ones with conflicting scales (TIED), layers that mix samples (COUPLING), parameters that are isolated
            but not a source's own (LEVEL), targets that cannot be met (TARGET).
    """
    columns = tuple(parameters)
    refusals = [*_coupling([*kinds, *(one.kind for one in columns)], policy.engine)]
    if not columns:
        refusals.append(Refusal("UNMATCHED", "the model has no parameter that is trained"))
    rows: dict[str, list[tuple[float, str]]] = {}
    for source in policy.sources:
        own, problems = _row(policy, source.name, columns)
        rows[source.name] = own
        refusals += problems
    rows = {name: _least(name, policy, rows) for name in rows}
    default, _ = _row(policy, "", columns) if policy.default == "allow" else (None, [])
    refusals += _starved(columns, rows.values())
    scales = tuple(tuple(scale for scale, _ in row) for row in rows.values())
    levels = tuple(tuple(level for _, level in row) for row in rows.values())
    without = None if default is None else tuple(scale for scale, _ in default)
    shapes = tuple((one.name, one.shape) for one in columns)
    matrix = MatrixRecord(tuple(rows), shapes, scales, levels, without, policy.normalize)
    names = [(one.name, *one.aliases) for one in columns]
    refusals += isolation_problems(policy, names, matrix)
    of_targets = list(target_problems(policy, names, scales))
    refusals += [one for one in of_targets if one.level == "error"]
    if refusals:
        raise GovernanceError(_first_of_each(refusals), "the policy does not fit this model:")
    return Plan(
        policy,
        columns,
        scales,
        levels,
        without,
        (*_dead(policy, columns), *_uniform(policy, columns, scales), *of_targets),
        matrix.s_hash,
    )


def _row(
    policy: Policy, source: str, columns: Sequence[TrainedParameter]
) -> tuple[list[tuple[float, str]], list[Refusal]]:
    """Return (scale, level) of each parameter for one source, and what is wrong with them."""
    rules = [rule for rule in policy.rules if rule.covers(source)]
    row, problems = [], []
    for parameter in columns:
        entry = _entry(policy, rules, parameter.name)
        for alias in parameter.aliases:
            other = _entry(policy, rules, alias)
            if other != entry:
                message = f"{parameter.name} is tied to {alias}, and for {source!r} their scales differ"
                problems.append(Refusal("TIED", f"{message}: {_shown(entry)} and {_shown(other)}"))
        if entry is None:
            problems.append(Refusal("UNMATCHED", f"no rule says whether {source!r} may train {parameter.name}"))
        row.append(entry or (1.0, policy.level))  # one that is unmatched is not called starved, too
    return row, problems


def _entry(policy: Policy, rules: Sequence[SourceRule], name: str) -> tuple[float, str] | None:
    for rule in reversed(rules):
        if rule.matches(name):
            return rule.scale, rule.level or policy.level
    return (1.0, policy.level) if policy.default == "allow" else None


def _shown(entry: tuple[float, str] | None) -> str:
    return "none" if entry is None else f"{entry[0]:g}"


def _least(name: str, policy: Policy, rows: Mapping[str, list[tuple[float, str]]]) -> list[tuple[float, str]]:
    """Return the row of a source: the elementwise minimum over what it was made from."""
    family = _family(name, policy)
    return [(min(rows[one][column][0] for one in family), level) for column, (_, level) in enumerate(rows[name])]


def _family(name: str, policy: Policy) -> set[str]:
    """Return a source and all that it was made from."""
    parents = {source.name: source.parents for source in policy.sources}
    family, queue = {name}, [name]
    while queue:
        for parent in parents.get(queue.pop(), ()):
            if parent not in family:
                family.add(parent)
                queue.append(parent)
    return family


def rows_that_change(plan: Plan, names: Sequence[str], beside: Sequence[int]) -> frozenset[int]:
    """Return the rows of S whose samples may change a buffer, such as the running statistics of batch norm.

    Buffers count as parameters: the rules have to open all names of the buffer, with any factor above zero, and all
    parameters of its module. Where no rule says anything of the buffer, its module's parameters decide; without any it
    stays as it is, unless the policy's default allows.

    Args:
        plan: The plan.
        names: All names of the buffer.
        beside: Columns of the parameters of the module that holds it.
    """
    policy = plan.policy
    listed = [*plan.sources, *([""] if plan.default is not None else [])]  # at the end, samples without a source
    return frozenset(
        row
        for row, source in enumerate(listed)
        if all(plan.column(index)[row] > 0 for index in beside)
        and all(
            _opens(policy, one, name, unsaid=bool(beside)) for one in sorted(_family(source, policy)) for name in names
        )
    )


def _opens(policy: Policy, source: str, name: str, *, unsaid: bool) -> bool:
    entry = _entry(policy, [rule for rule in policy.rules if rule.covers(source)], name)
    return unsaid if entry is None else entry[0] > 0


def _starved(columns: Sequence[TrainedParameter], rows: Iterable[Sequence[tuple[float, str]]]) -> Iterator[Refusal]:
    listed = list(rows)
    for index, parameter in enumerate(columns):
        if listed and all(row[index][0] == 0 for row in listed):
            yield Refusal("STARVED", f"no source may train {parameter.name}: it would stay as it was initialised")


def _coupling(kinds: Iterable[str], engine: str) -> Iterator[Refusal]:
    alone = engine == "microbatch"
    mixing = OVER_RANKS if alone else BATCH_NORMS
    of = "all ranks, which may be of several sources" if alone else "a batch"
    for kind in dict.fromkeys(kinds):
        if kind in mixing:
            yield Refusal("COUPLING", f"{kind} mixes the samples of {of}: each changes the gradients of the others")


def _first_of_each(refusals: Iterable[Refusal], most: int = 20) -> list[Refusal]:
    """Return the first refusals of each code, and how many more there are."""
    by_code: dict[str, list[Refusal]] = {}
    for one in refusals:
        by_code.setdefault(one.code, []).append(one)
    kept = []
    for code, found in by_code.items():
        kept += found[:most]
        if len(found) > most:
            kept.append(Refusal(code, f"and {len(found) - most} more"))
    return kept


def _dead(policy: Policy, columns: Sequence[TrainedParameter]) -> Iterator[Refusal]:
    names = [name for one in columns for name in (one.name, *one.aliases)]
    for number, rule in enumerate(policy.rules):
        if not any(rule.matches(name) for name in names):
            message = f"governance.rules[{number}] ({rule.source}, {rule.layers}) matches no parameter of this model"
            yield Refusal("DEAD", message, "warning")


def _uniform(
    policy: Policy, columns: Sequence[TrainedParameter], scales: Sequence[Sequence[float]]
) -> Iterator[Refusal]:
    """Warn of one factor for all sources: to an optimizer such as Adam, which divides by its size, it is nothing."""
    for index, parameter in enumerate(columns):
        found = {row[index] for row in scales}
        if len(found) == 1 and found not in ({1.0}, {0.0}):
            factor = next(iter(found))
            message = f"{parameter.name} has the factor {factor:g} for all sources, which Adam and its kin cancel"
            yield Refusal("POLICY", message, "warning")
            return


def parameters_of(model: Any, prefix: str = "") -> list[TrainedParameter]:
    """Return what is trained of a model, which has `named_parameters` and `named_modules` as those of torch do.

    Args:
        model: A model that is not wrapped or compiled.
        prefix: In front of each name.
    """
    kinds = {name: stock_class(type(module)).__name__ for name, module in model.named_modules()}
    names: dict[int, list[str]] = {}
    found: dict[int, Any] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            names.setdefault(id(parameter), []).append(name)
            found[id(parameter)] = parameter
    return [
        TrainedParameter(
            prefix + own[0],
            tuple(found[key].shape),
            tuple(prefix + alias for alias in own[1:]),
            kinds.get(own[0].rpartition(".")[0], ""),
        )
        for key, own in names.items()
    ]


_SPLIT = "FSDPModule"


def is_split(kind: type) -> bool:
    """Return whether a class is one that torch's `fully_shard` has made of another."""
    return any(one.__name__ == _SPLIT for one in kind.__mro__)


def stock_class(kind: type) -> type:
    """Return the class of which `fully_shard` has made this one; any other as it is."""
    names = [one.__name__ for one in kind.__mro__]
    return kind.__mro__[names.index(_SPLIT) + 1] if _SPLIT in names else kind


def parameters_from(listed: Any) -> list[TrainedParameter]:
    """Return the parameters of a list that was read from JSON or YAML.

    Args:
        listed: A mapping of names to shapes, or a list of `{name, shape}` or of names alone.

    Raises:
        GovernanceError: POLICY: it is something else.
    """
    items: Iterable[tuple[Any, Any]]
    if isinstance(listed, Mapping):
        items = listed.items()
    elif isinstance(listed, list):
        items = [(one.get("name"), one.get("shape", ())) if isinstance(one, Mapping) else (one, ()) for one in listed]
    else:
        items = [(None, None)]
    found = []
    for name, shape in items:
        whole = isinstance(shape, list | tuple) and all(
            isinstance(size, int) and not isinstance(size, bool) for size in shape
        )
        if not isinstance(name, str) or not name or not whole:
            message = "a list of parameters maps names to shapes, such as {head.weight: [10, 64]}"
            raise GovernanceError.of("POLICY", message)
        found.append(TrainedParameter(name, tuple(shape)))
    return found
