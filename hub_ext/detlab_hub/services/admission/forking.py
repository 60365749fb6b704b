"""Forks: a config that began as that of an earlier experiment, whose secrets its submitter has only seen masked.

The owner of the earlier one gets their own secrets back, here, and nobody sees them. Others may only have read it: they
give secrets of their own. What the cluster or the workspace gives to every config is given to a fork, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import BundleError, Problem
from detlab.schemas.expconf.raw import structure
from detlab.schemas.expconf.raw.paths import Path, render
from detlab.schemas.expconf.raw.secret_keys import MASK, SECRET_BLOCKS, holds_secret
from detlab_hub.services.admission.bundles import may_use
from detlab_hub.services.base.access import experiment_for, has_secrets_of
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.masking import masked_config, masked_storage
from detlab_hub.services.base.warm_start import as_asked

FORKED_FROM = "forked_from"
"""Key of `ExperimentRow.source`, which no client sets."""
_STORAGE, _ENVIRONMENT = "checkpoint_storage", "environment"
_REGISTRY = (_ENVIRONMENT, "registry_auth")
_ADDRESSES = frozenset({"account_url", "endpoint_url"})


@dataclass(frozen=True)
class ForkedExperiment:
    """The earlier experiment of a fork, which the submitter may read.

    Attributes:
        id: Its id.
        owner: Its owner.
        config: Its config, with its secrets.
        bundle: Its code.
        own: Whether its secrets are the submitter's.
    """

    id: int
    owner: str
    config: dict[str, Any]
    bundle: str | None
    own: bool


def forked_experiment(s: Session, caller: Caller, experiment_id: int | None) -> ForkedExperiment | None:
    """Load the experiment that a submission names as forked.

    Raises:
        NotFound: There is no such experiment for the caller.
    """
    if experiment_id is None:
        return None
    row = experiment_for(s, caller, experiment_id)
    own = has_secrets_of(caller, row.owner)
    return ForkedExperiment(row.id, row.owner, as_asked(row.config), row.bundle, own)


def check_code(s: Session, caller: Caller, bundle: str | None, forked: ForkedExperiment | None) -> None:
    """Check that the code of a fork, if it is that of the earlier experiment, is still there.

    Raises:
        BundleError: It is not.
    """
    if forked is not None and bundle is not None and bundle == forked.bundle and not may_use(s, caller, bundle):
        raise code_gone(forked)


def code_gone(forked: ForkedExperiment | None) -> BundleError:
    """Return what is said of code that is known and not stored any more."""
    if forked is None:
        return BundleError("the code is not stored any more", hint="send it again")
    return BundleError(
        f"the code of experiment {forked.id} is gone",
        hint=f"with other code: det experiment fork {forked.id} --code DIR",
    )


def with_secrets(
    raw: Any,
    forked: ForkedExperiment | None,
    blocks: Callable[[str], Iterator[Mapping[str, Any]]],
    default_storage: Mapping[str, Any] | None,
) -> tuple[Any, list[Problem]]:
    """Return a config with secrets instead of masks, and what is wrong with the masks that are left.

    Args:
        raw: The config as it was written.
        forked: The experiment whose config it began as.
        blocks: Yields the blocks of a key that its template, workspace, pool and cluster give.
        default_storage: The `checkpoint_storage` that the cluster gives.
    """
    _, safe = structure.inspect(raw)  # aliases may spell out without end; the check refuses such a config
    if not safe or not isinstance(raw, Mapping) or not (masks := list(_masks(raw))):
        return raw, []
    made: Any = _copied(raw)
    made, masks = _without_given(made, masks, [*blocks(_STORAGE), default_storage])
    made, masks = _without_registry(made, masks, blocks(_ENVIRONMENT))
    problems = []
    shown = {} if forked is None else masked_config(forked.config)
    for place in masks:
        written = _at(made, place)
        if forked is not None and forked.own and written == _at(shown, place):
            _put(made, place, _at(forked.config, place))
            continue
        hint = "give its value"
        if forked is not None and not forked.own and written == _at(shown, place):
            hint = f"it is {forked.owner}'s, which a fork does not take along: give one of your own, or remove the key"
        problems.append(Problem(render(place), "is a mask, not the secret", hint))
    return made, problems


def _without_given(
    config: Any, masks: Sequence[Path], sources: Sequence[Mapping[str, Any] | None]
) -> tuple[Any, list[Path]]:
    """Remove masks from the storage if it is the one that the cluster or the workspace gives, which then gives them."""
    block = config.get(_STORAGE)
    for source in sources:
        if not source or not isinstance(block, dict):
            continue
        shown = masked_storage(dict(source))
        where = {key: value for key, value in shown.items() if not key.startswith("save_")}
        if any(block.get(key) != value for key, value in where.items()):
            continue
        mine = [place for place in masks if place[0] == _STORAGE and _at(shown, place[1:]) == _at(config, place)]
        for key in {str(place[1]) for place in mine if len(place) > 1}:
            del block[key]
        masks = [place for place in masks if place not in mine]
    return config, list(masks)


def _without_registry(
    config: Any, masks: Sequence[Path], sources: Iterator[Mapping[str, Any]]
) -> tuple[Any, list[Path]]:
    """Remove the credentials of a registry if they are those that are given to every config, which then gives them."""
    shown = _at(config, _REGISTRY)
    same = shown is not None and any(
        _at(masked_config({_ENVIRONMENT: dict(one)}), _REGISTRY) == _filled(shown) for one in sources
    )
    if not same:
        return config, list(masks)
    del config[_ENVIRONMENT][_REGISTRY[-1]]
    return config, [place for place in masks if place[:2] != _REGISTRY]


def _filled(block: Any) -> Any:
    """Return what a block says, without what a resolved config has as null."""
    return {key: value for key, value in block.items() if value is not None} if isinstance(block, Mapping) else block


def _masks(value: Any, place: Path = ()) -> Iterator[Path]:
    """Yield the places of secrets at which a config has a mask, or one in an address."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _masks(item, (*place, str(key)))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _masks(item, (*place, at))
    elif isinstance(value, str) and MASK in value and _is_secret(place):
        yield place


def _is_secret(place: Path) -> bool:
    if holds_secret(place):
        return True
    return bool(place) and place[0] in SECRET_BLOCKS and place[-1] in _ADDRESSES


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _at(value: Any, place: Path) -> Any:
    for key in place:
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return None
    return value


def _put(config: Any, place: Path, value: Any) -> None:
    for key in place[:-1]:
        config = config[key]
    config[place[-1]] = value
