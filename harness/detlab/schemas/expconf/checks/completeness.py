"""What a submission needs beyond sanity: Determined's completeness check.

`name`, `reproducibility` and `checkpoint_storage` are needed too, but the master supplies them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from detlab.errors import Level, Problem
from detlab.schemas.expconf.blocks import searchers
from detlab.schemas.expconf.blocks.lengths import UNITS
from detlab.schemas.expconf.blocks.model_searchers import ModelBasedConfig
from detlab.schemas.expconf.blocks.scalars import NOTE_NEEDED, note
from detlab.schemas.expconf.blocks.searcher_base import SearcherBlock, first_of_metrics
from detlab.schemas.expconf.checks import misnamed
from detlab.schemas.expconf.checks.walk import Visit, visit_blocks, visit_hyperparameters
from detlab.schemas.expconf.raw.paths import render

_LEARNING = frozenset(name for name, block in searchers.BUILT_IN.items() if issubclass(block, ModelBasedConfig))
_ASHA = ("async_halving", "adaptive_asha", "asha", "hyperband", "bohb")


def missing(raw: dict[str, Any], *, complete: bool) -> Iterator[Problem]:
    """Yield the fields that a submission needs and this config lacks.

    Args:
        raw: The raw config.
        complete: Judge a submission: absent fields are errors, absent blocks too. Otherwise only the fields
            of blocks that are there are named, as warnings, because a template can still supply them.
    """
    level: Level = "error" if complete else "warning"
    for visit in visit_blocks(raw):
        if not visit.path and not complete:
            continue
        given = first_of_metrics(visit.raw) if issubclass(visit.model, SearcherBlock) else visit.raw
        for key, field in visit.model.model_fields.items():
            if visit.path == () and key == "entrypoint" and raw.get("unmanaged") is True:
                continue
            if given.get(key) is None and note(field, NOTE_NEEDED):
                yield Problem(render((*visit.path, key)), _message(complete), _hint(visit, key), level)
    for block in misnamed.misnamed(raw):
        for key in misnamed.needed_by_all(block):
            yield Problem(render((*block.path, key)), _message(complete), None, level)
    if complete:
        yield from _azure(raw)
        yield from _s3(raw)
        yield from _nothing_to_search(raw)


def _message(complete: bool) -> str:
    return "is required" if complete else "is not set; a submission needs it"


def _hint(visit: Visit, key: str) -> str | None:
    if visit.path == () and key == "entrypoint":
        return "such as `entrypoint: python3 train.py`"
    if visit.path == () and key == "searcher":
        return "such as `searcher: {name: single, metric: validation_loss}`"
    if key == "name" and visit.path == ("searcher",):
        return f"one of {', '.join(searchers.MEMBERS)}"
    if key in ("time_metric", "max_time") and visit.raw.get("name") in _ASHA:
        return _from_length(visit.raw.get("max_length"), key)
    return None


def _from_length(length: object, key: str) -> str | None:
    unit, amount = "batches", length
    if isinstance(length, dict):
        unit, amount = next(((unit, length[unit]) for unit in UNITS if unit in length), ("batches", None))
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return None
    value = unit if key == "time_metric" else f"{amount:g}"
    suited = f"`{key}: {value}` says the same, if training code reports {unit!r}"
    if key == "time_metric":
        suited += "; if it reports another name, such as 'epoch' or 'batch', write that one"
    return f"max_length alone no longer suffices; {suited}"


def _azure(raw: dict[str, Any]) -> Iterator[Problem]:
    block = raw.get("checkpoint_storage")
    if not isinstance(block, dict) or block.get("type") != "azure":
        return
    if block.get("connection_string") is None and block.get("account_url") is None:
        yield Problem("checkpoint_storage", "exactly one of connection_string and account_url must be set")


def _s3(raw: dict[str, Any]) -> Iterator[Problem]:
    block = raw.get("checkpoint_storage")
    if not isinstance(block, dict) or block.get("type") != "s3":
        return
    if block.get("access_key") and not block.get("secret_key"):
        yield Problem(
            "checkpoint_storage.secret_key", "is required beside access_key", "without both, the node's are used"
        )
    for key in ("secret_key", "session_token"):
        if block.get(key) and not block.get("access_key"):
            yield Problem(
                "checkpoint_storage.access_key", f"is required beside {key}", "without any of them, the node's are used"
            )
            return


def _nothing_to_search(raw: dict[str, Any]) -> Iterator[Problem]:
    searcher = raw.get("searcher")
    name = searcher.get("name") if isinstance(searcher, dict) else None
    learns = isinstance(name, str) and name in _LEARNING
    if name not in ("random", "sobol", "grid", "dehb", "pbt", "pb2", *_ASHA) and not learns:
        return
    found = any(
        isinstance(value, dict) and value.get("type") not in (None, "const")
        for _, value in visit_hyperparameters(raw.get("hyperparameters"))
    )
    if not found:
        message = f"{name} has nothing to search: every hyperparameter is a constant"
        if learns:
            yield Problem("hyperparameters", message, "give one a range, or use `single`")
        else:
            yield Problem("hyperparameters", message, "all trials will be alike", "warning")
