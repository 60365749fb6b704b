"""Did you mean …? Hints for keys that no block knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from detlab.schemas.expconf.blocks import searchers, stopping, storage
from detlab.schemas.expconf.blocks.environment import EnvironmentConfig, EnvironmentVariablesMap, ResourcesConfig
from detlab.schemas.expconf.blocks.experiment import ExperimentConfig
from detlab.schemas.expconf.blocks.extras import OptimizationsConfig, ProfilingConfig, ReproducibilityConfig
from detlab.schemas.expconf.blocks.scalars import Block
from detlab.schemas.expconf.blocks.searchers import UnnamedSearcher
from detlab.schemas.expconf.blocks.storage import UntypedStorage

RENAMED: dict[str, str] = {
    "batches_per_step": "it is called `scheduling_unit` since Determined 0.13, and deprecated",
    "hyperparameter": "it is called `hyperparameters`",
    "hparams": "it is called `hyperparameters`",
    "integration": "it is called `integrations`",
    "slots": "it is `resources.slots_per_trial`",
    "actions": "one policy has one `action`; write a second policy for a second action",
    "max_steps": "lengths are in training code, or `searcher.max_time` for adaptive searchers",
    "warm_start": "use `searcher.source_trial_id` or `searcher.source_checkpoint_uuid`",
}

_BLOCKS: dict[str, type[Block]] = {
    "": ExperimentConfig,
    "searcher": UnnamedSearcher,
    "resources": ResourcesConfig,
    "environment": EnvironmentConfig,
    "checkpoint_storage": UntypedStorage,
    "reproducibility": ReproducibilityConfig,
    "profiling": ProfilingConfig,
    "optimizations": OptimizationsConfig,
}


@cache
def _homes() -> dict[str, list[str]]:
    homes: dict[str, list[str]] = {}
    for block, model in _BLOCKS.items():
        for key in model.model_fields:
            homes.setdefault(key, []).append(f"{block}.{key}" if block else key)
    return homes


def _of_siblings(key: str, model: type[Block]) -> str | None:
    """Return the hint for a key that other search methods or storage types have, and this one has not."""
    for field, members in (
        ("name", searchers.BUILT_IN),
        ("name", stopping.BUILT_IN),
        ("type", storage.MEMBERS),
    ):
        own = next((name for name, member in members.items() if member is model), None)
        having = [f"`{name}`" for name, member in members.items() if key in member.model_fields]
        if own is not None and having:
            whose = " and ".join([", ".join(having[:-1]), having[-1]] if having[1:] else having)
            return f"`{own}` does not use it; {whose} {'do' if having[1:] else 'does'}: remove it, or change `{field}`"
    return None


def closest(word: object, known: Iterable[str]) -> str | None:
    """Return the known word that is most like the given one, if any is close."""
    given, names = str(word).lower(), list(known)
    matches = difflib.get_close_matches(given, names, n=1, cutoff=0.7)
    if matches:
        return matches[0]
    # two letters in the other order are much of a short word
    return next((name for name in names if len(given) > 2 and sorted(name) == sorted(given)), None)


@cache
def _of_another_version() -> str:
    """Return the hint for a key that resembles no known one: client and master may differ in version."""
    try:
        here = f"detlab {version('detlab')}"
    except PackageNotFoundError:
        here = "this detlab"
    return f"{here} has no such key; a newer version may: compare client and master with `det version`"


def for_key(key: object, model: type[Block], where: str) -> str:
    """Return a hint for an unknown key of a block.

    Args:
        key: The unknown key.
        model: The block that refused it.
        where: Path of the block; empty for the whole config.
    """
    text = str(key)
    if model is EnvironmentVariablesMap:
        return f"write NAME=VALUE texts, all in a list (or a list for each of cpu, cuda, rocm): [{text}=…]"
    if (others := _of_siblings(text, model)) is not None:
        return others
    near = closest(text, model.model_fields)
    if near is not None:
        return f"did you mean `{near}`?"
    if text in RENAMED:
        return RENAMED[text]
    elsewhere = [home for home in _homes().get(text, []) if home.rpartition(".")[0] != where]
    if len(elsewhere) == 1:
        return f"it belongs at `{elsewhere[0]}`"
    return _of_another_version()
