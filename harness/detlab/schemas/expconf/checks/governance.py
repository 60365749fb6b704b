"""Whether a `governance` block makes sense as a text; against a model it is compiled by `detlab.governance`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from detlab.errors import Problem
from detlab.schemas.expconf.blocks.governance import ANY_SOURCE, MACRO
from detlab.schemas.expconf.canary_bounds import smallest_shown
from detlab.schemas.expconf.checks.search_spaces import finite_number
from detlab.schemas.expconf.checks.suggestions import closest
from detlab.schemas.expconf.raw.paths import render
from detlab.schemas.patterns import BadPattern, check_pattern

MOST_SOURCES = 100
MOST_RULES = 500
MOST_PATTERN_CHARS = 500
CLOSE = 1e-6
"""How far the sum of shares may be off."""
RANKED = {
    "memorization_auc_lcb": ("canaries", "gov/canary_auc_lcb", "max"),
    "extraction_lcb": ("canaries", "gov/extraction_lcb", "max"),
    "depth_conformance": ("targets", "gov/conformance", "min"),
}
"""Constraints that searches keep: the key of the block that has them measured, the metric, and the bound."""
MEASURED = ("provenance_coverage", "leak_mass", *RANKED)
"""Constraints that the trainer measures."""
_WHERE = "governance"


def _mappings(block: dict[str, Any], key: str) -> list[tuple[int, dict[str, Any]]]:
    found = block.get(key)
    return [(index, one) for index, one in enumerate(found) if isinstance(one, dict)] if isinstance(found, list) else []


def policy(raw: dict[str, Any]) -> Iterator[Problem]:
    """Require names that are declared, expressions in RE2's syntax, and parents without a circle."""
    block = raw.get("governance")
    if not isinstance(block, dict):
        return
    for key, most in (("sources", MOST_SOURCES), ("rules", MOST_RULES)):
        if isinstance(block.get(key), list) and len(block[key]) > most:
            yield Problem(f"{_WHERE}.{key}", f"has {len(block[key])} entries; there may be {most}")
            return
    names = [one.get("name") for _, one in _mappings(block, "sources") if isinstance(one.get("name"), str)]
    yield from _sources(block, names)
    yield from _depth(block)
    yield from _rules(block, names)
    yield from _targets(block, names)
    yield from _constraints(block)
    yield from _canaries(block, names)
    yield from _private(raw, block)
    yield from _contradicted(raw, block)


def _sources(block: dict[str, Any], names: list[Any]) -> Iterator[Problem]:
    parents: dict[Any, list[Any]] = {}
    for index, source in _mappings(block, "sources"):
        path = f"{_WHERE}.sources[{index}]"
        name = source.get("name")
        if isinstance(name, str) and names.index(name) < index:
            yield Problem(f"{path}.name", f"{name!r} is declared twice")
        given = source.get("parents")
        parents[name] = given if isinstance(given, list) else []
        for at, parent in enumerate(parents[name]):
            if isinstance(parent, str) and parent not in names:
                yield _unknown(f"{path}.parents[{at}]", parent, names)
    for index, source in _mappings(block, "sources"):
        if _descends_from_itself(source.get("name"), parents):
            yield Problem(f"{_WHERE}.sources[{index}].parents", f"{source.get('name')!r} is made from itself")


def _descends_from_itself(name: Any, parents: dict[Any, list[Any]]) -> bool:
    seen: set[Any] = set()
    queue = [one for one in parents.get(name, []) if isinstance(one, str)]
    while queue:
        one = queue.pop()
        if one == name:
            return True
        if one not in seen:
            seen.add(one)
            queue += [other for other in parents.get(one, []) if isinstance(other, str)]
    return False


def _unknown(path: str, name: str, names: list[Any]) -> Problem:
    near = closest(name, names)
    hint = f"did you mean `{near}`?" if near else f"declared: {', '.join(map(str, names)) or 'none'}"
    return Problem(path, f"no source is called {name!r}", hint)


def _depth(block: dict[str, Any]) -> Iterator[Problem]:
    depth = block.get("depth")
    for name, patterns in depth.items() if isinstance(depth, dict) else ():
        path = f"{_WHERE}.depth.{name}"
        if not patterns and isinstance(patterns, list):
            yield Problem(path, "names no layer", "list expressions for names of parameters or modules")
        for index, pattern in enumerate(patterns if isinstance(patterns, list) else ()):
            yield from _pattern(f"{path}[{index}]", pattern)


def _rules(block: dict[str, Any], names: list[Any]) -> Iterator[Problem]:
    depth = block.get("depth")
    macros = list(depth) if isinstance(depth, dict) else []
    for index, rule in _mappings(block, "rules"):
        path = f"{_WHERE}.rules[{index}]"
        source, layers = rule.get("source"), rule.get("layers")
        if isinstance(source, str) and source != ANY_SOURCE and source not in names:
            yield _unknown(f"{path}.source", source, names)
        yield from _layers(f"{path}.layers", layers, macros)
        if "isolated" in (rule.get("level"), block.get("level")) and block.get("clip") == "global":
            message = "clips the gradients of all sources together, which couples them: `isolated` needs per_group"
            yield Problem(f"{_WHERE}.clip", message, "leave `clip` out")
            break
    if block.get("rules") in (None, []) and block.get("default") != "allow":
        message = "are missing, and the default denies: no source may train anything"
        yield Problem(f"{_WHERE}.rules", message, 'begin with {source: "*", layers: ".*", scale: 1.0}')


def _layers(path: str, layers: object, macros: list[Any]) -> Iterator[Problem]:
    if not (isinstance(layers, str) and layers.startswith(MACRO)):
        yield from _pattern(path, layers)
    elif layers[1:] not in macros:
        near = closest(layers[1:], macros)
        hint = f"did you mean `@{near}`?" if near else "declare it in governance.depth"
        yield Problem(path, f"no depth is called {layers[1:]!r}", hint)


def _targets(block: dict[str, Any], names: list[Any]) -> Iterator[Problem]:
    """Require of each target a source and layers that there are, shares with the sum 1, and none for what is closed."""
    targets, where = block.get("targets"), f"{_WHERE}.targets"
    if not isinstance(targets, dict):
        return
    if not targets:
        yield Problem(where, "names no source", "leave it out, or write SOURCE: {LAYERS: SHARE}")
    elif block.get("level") == "dp":
        message = "cannot be measured at the level dp: nobody sees what a source gives to a layer"
        yield Problem(where, message, "leave it out")
    depth = block.get("depth")
    macros = list(depth) if isinstance(depth, dict) else []
    for source, own in targets.items():
        path = render((*where.split("."), str(source)))
        if isinstance(source, str) and source not in names:
            yield _unknown(path, source, names)
        if not isinstance(own, dict):
            continue
        for layers, share in own.items():
            at = render((*where.split("."), str(source), str(layers)))
            yield from _layers(at, layers, macros)
            if finite_number(share) and _closed(block, source, layers):
                message = f"is {share}, and the rules close these layers to {source!r}"
                yield Problem(at, message, "open them, or write 0")
        shares = [finite_number(share) for share in own.values()]
        numbers = [one for one in shares if one is not None]
        if len(numbers) == len(shares) and abs(sum(numbers) - 1) > CLOSE:
            yield Problem(path, f"has shares with the sum {sum(numbers):g}", "they must add up to 1")


def _closed(block: dict[str, Any], source: Any, layers: Any) -> bool:
    """Return whether the text alone shows that a source may train none of some layers; a model may show more."""
    for _, rule in reversed(_mappings(block, "rules")):
        if rule.get("source") not in (ANY_SOURCE, source):
            continue
        if finite_number(rule.get("scale")) != 0:
            return False
        if rule.get("layers") in (layers, ".*"):
            return True
    return False


def _private(raw: dict[str, Any], block: dict[str, Any]) -> Iterator[Problem]:
    """Require of the level `dp` its numbers, and that the whole training is at it."""
    if block.get("level") != "dp":
        if isinstance(block.get("dp"), dict):
            yield Problem(f"{_WHERE}.dp", "has an effect at the level dp alone", "write `level: dp`, or leave it out")
        for index, rule in _mappings(block, "rules"):
            if rule.get("level") == "dp":
                message = "is for the whole training, and not for the parameters of one rule"
                yield Problem(f"{_WHERE}.rules[{index}].level", message, "write `governance.level: dp`")
        return
    if not isinstance(block.get("dp"), dict):
        hint = "such as {max_grad_norm: 1.0, target_epsilon: 8.0, delta: 1.0e-5}"
        yield Problem(f"{_WHERE}.dp", "is missing, and the level dp needs its numbers", hint)
    for index, rule in _mappings(block, "rules"):
        path = f"{_WHERE}.rules[{index}]"
        if rule.get("level") not in (None, "dp"):
            yield Problem(f"{path}.level", "differs from dp, which is for the whole training", "leave it out")
        if rule.get("scale") != 1 and finite_number(rule.get("scale")) is not None:
            yield Problem(f"{path}.scale", "must be 1: at the level dp all sources train all layers", "write 1.0")
    for key, wanted in (("enforce", "strict"), ("engine", "auto"), ("normalize", "global")):
        if block.get(key) not in (None, wanted):
            yield Problem(f"{_WHERE}.{key}", f"must be {wanted} at the level dp", "leave it out")
    options = raw.get("optimizations")
    most = finite_number(options.get("aggregation_frequency")) if isinstance(options, dict) else None
    if most is not None and most > 1:
        message = "must be 1 at the level dp: each batch is a step of its own, which the accountant counts"
        yield Problem("optimizations.aggregation_frequency", message, "make the batches larger instead")


def _pattern(path: str, pattern: object) -> Iterator[Problem]:
    if not isinstance(pattern, str):
        return
    if len(pattern) > MOST_PATTERN_CHARS:
        yield Problem(path, f"has {len(pattern):,} characters; an expression may have {MOST_PATTERN_CHARS}")
        return
    try:
        check_pattern(pattern)
    except BadPattern as error:
        yield Problem(path, str(error), error.hint)


def _constraints(block: dict[str, Any]) -> Iterator[Problem]:
    given = block.get("constraints")
    for name, bounds in given.items() if isinstance(given, dict) else ():
        path = f"{_WHERE}.constraints.{name}"
        if name not in MEASURED:
            near = closest(name, MEASURED)
            hint = f"did you mean `{near}`?" if near else f"measured so far: {', '.join(MEASURED)}"
            yield Problem(path, "is not measured by this detlab", hint)
        elif isinstance(bounds, dict) and bounds.get("min") is None and bounds.get("max") is None:
            yield Problem(path, "has no bound", "set `min`, `max` or both")
        elif name in RANKED:
            yield from _ranked(block, name, bounds)


def _ranked(block: dict[str, Any], name: str, bounds: Any) -> Iterator[Problem]:
    path, (by, _, side) = f"{_WHERE}.constraints.{name}", RANKED[name]
    if not isinstance(block.get(by), dict):
        example = "{sources: NAME}" if by == "canaries" else "{SOURCE: {LAYERS: SHARE}}"
        yield Problem(path, f"is measured by {by}, and there are none", f"add `{by}: {example}`")
    wrong = "min" if side == "max" else "max"
    if isinstance(bounds, dict) and bounds.get(wrong) is not None:
        what = "memorisation" if by == "canaries" else "layers that miss their target"
        yield Problem(f"{path}.{wrong}", f"asks for {what}", f"set `{side}`")
    least = finite_number(bounds.get("min")) if isinstance(bounds, dict) and side == "min" else None
    if least is not None and not 0 < least <= 1:
        yield Problem(f"{path}.min", f"must be above 0 and 1 at most, not {least:g}", "such as 0.8")


def _canaries(block: dict[str, Any], names: list[Any]) -> Iterator[Problem]:
    """Require sources that are declared, no secret in the config, and enough canaries for the bound that is asked."""
    canaries, path = block.get("canaries"), f"{_WHERE}.canaries"
    if not isinstance(canaries, dict):
        return
    for key in ("seed", "secret", "planted"):
        if key in canaries:
            message = "would let code that reads the config know which canaries are trained on"
            yield Problem(f"{path}.{key}", message, "leave it out: it is drawn for each trial, and recorded")
    given = canaries.get("sources")
    listed = [given] if isinstance(given, str) else given if isinstance(given, list) else []
    for index, name in enumerate(listed):
        where = f"{path}.sources" if isinstance(given, str) else f"{path}.sources[{index}]"
        if isinstance(name, str) and name not in names:
            yield _unknown(where, name, names)
        elif name in listed[:index]:
            yield Problem(where, f"{name!r} is there twice")
    yield from _enough(block, canaries, len(listed))


def _enough(block: dict[str, Any], canaries: dict[str, Any], sources: int) -> Iterator[Problem]:
    constraints = block.get("constraints")
    bounds = constraints.get("memorization_auc_lcb") if isinstance(constraints, dict) else None
    limit = finite_number(bounds.get("max")) if isinstance(bounds, dict) else None
    count, looks = canaries.get("count", 200), canaries.get("looks", 10)
    confidence = finite_number(canaries.get("confidence", 0.95))
    whole = all(type(one) is int and one > 0 for one in (count, looks))
    if limit is None or not whole or confidence is None or not 0 < confidence < 1 or count < 4:
        return
    if not 0.5 <= limit < 1:
        path = f"{_WHERE}.constraints.memorization_auc_lcb.max"
        yield Problem(path, f"must be from 0.5, which is chance, to below 1, not {limit:g}", "such as 0.65")
        return
    shown = smallest_shown(limit, count, confidence, looks * max(1, sources))
    if shown > (1 + limit) / 2:
        finds = f"only an estimate above {shown:.2f} would" if shown < 1 else "none would"
        message = f"are too few: with {count} canaries {finds} show that the bound of {limit:g} is broken"
        yield Problem(f"{_WHERE}.canaries.count", message, "plant more canaries, or ask for fewer `looks`")


def _contradicted(raw: dict[str, Any], block: dict[str, Any]) -> Iterator[Problem]:
    """Refuse a bound of the search that differs from that of the policy."""
    searcher, constraints = raw.get("searcher"), block.get("constraints")
    own = searcher.get("constraints") if isinstance(searcher, dict) else None
    if not isinstance(own, dict) or not isinstance(constraints, dict):
        return
    for name, (_, metric, side) in RANKED.items():
        asked, said = constraints.get(name), own.get(metric)
        if isinstance(asked, dict) and isinstance(said, dict):
            other, bound = "min" if side == "max" else "max", finite_number(asked.get(side))
            if said.get(other) is not None or finite_number(said.get(side)) != bound:
                message = f"differs from governance.constraints.{name}"
                yield Problem(f"searcher.constraints.{metric}", message, "leave it out: the policy's counts")
