"""From a submitted config to one that can run, or to the list of every reason why it cannot."""

from __future__ import annotations

import difflib
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import BundleError, ConfigError, Problem
from detlab.launch.archives import ArchiveLimits, UnsafeBundle, members, open_bundle
from detlab.schemas import expconf
from detlab.schemas.expconf.blocks.environment import DEVICE_KINDS
from detlab.schemas.expconf.checks.search_costs import too_many_at_once
from detlab.schemas.runtimes import DOCKER, takes_image
from detlab.schemas.wire import CreateExperiment, GivenView, ProblemView
from detlab_hub.core.scheduling import DEFAULT_PRIORITY
from detlab_hub.core.searchers import Searcher, SearcherConfigError, make_searcher
from detlab_hub.services.admission.bundles import may_use
from detlab_hub.services.admission.configs.layers import ConfigLayers, with_sources
from detlab_hub.services.admission.forking import ForkedExperiment, with_secrets
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.configs.parts import EXPERIMENT
from detlab_hub.services.base.configs.rules import ConfigRules
from detlab_hub.services.base.references import entrypoint_words, too_many
from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.warm_start import check_results, check_source
from detlab_hub.services.lifecycle.rows import slots_per_trial

MAX_SEED = 2**31 - 1
_AT_ONCE = "max_concurrent_trials"
_PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")


@dataclass
class PreparedConfig:
    """A checked config."""

    config: dict[str, Any]
    warnings: list[Problem] = field(default_factory=list)
    given: list[GivenView] = field(default_factory=list)
    """What its submitter has not said: of its template, workspace, pool, cluster and config policies."""

    @property
    def warning_views(self) -> list[ProblemView]:
        """The warnings as callers see them."""
        return [ProblemView.model_validate(problem.to_dict()) for problem in self.warnings]


def prepare(
    request: CreateExperiment,
    settings: Settings,
    draw: random.Random,
    read: tuple[Any, list[Problem]] | None = None,
    layers: ConfigLayers | None = None,
    forked: ForkedExperiment | None = None,
) -> PreparedConfig:
    """Check and complete a config; open values are drawn.

    Args:
        request: What was submitted.
        settings: Of the master.
        draw: For open values.
        read: The config as `raw_of` has read it.
        layers: What it is laid between: that passes the same checks as what the config says.
        forked: The experiment as whose copy it began, with the secrets that are masks in the copy.

    Raises:
        ConfigError: With every mistake, and the warnings; or a config policy does not allow it.
    """
    layers = layers or ConfigLayers(settings, ConfigRules(EXPERIMENT))
    raw, problems = raw_of(request) if read is None else read
    if not isinstance(raw, dict):
        raise ConfigError(problems or expconf.check(raw, complete=True))
    raw, masks = with_secrets(raw, forked, layers.blocks, settings.default_checkpoint_storage)
    problems += masks
    _refuse(problems + expconf.check(raw))  # merge trusts its input
    raw, given = _laid(raw, layers)
    problems += with_sources(expconf.check(raw, complete=True), given)
    _refuse(problems)
    parsed = expconf.parse(raw, complete=True)
    runtime = parsed.runtime or settings.default_runtime
    problems += expconf.unsupported_keys(parsed, runtime=runtime)
    environment = raw.get("environment") or {}
    if takes_image(runtime) and "image" not in environment:
        if settings.default_image:
            raw = {**raw, "environment": {**environment, "image": dict(settings.default_image)}}
        elif runtime == DOCKER:
            hint = "name one, or ask the operator for c.DetHub.default_image"
            problems.append(Problem("environment.image", "is required for containers on this cluster", hint))
    config = {} if expconf.errors_of(problems) else expconf.resolve(raw)
    problems += too_many(config)
    _refuse(problems)
    config["runtime"] = runtime
    if takes_image(runtime):
        asked = (raw.get("environment") or {}).get("image")
        config["environment"]["image"] = {} if asked is None else named_images(asked)
    _draw_open(config, draw)
    pool = settings.pools.of(settings.pools.named(config["resources"]["resource_pool"], slots_per_trial(config)))
    given += layers.rules.complete(config, DEFAULT_PRIORITY if pool is None else pool.priority)
    layers.rules.check(config)
    try:
        made = _searcher(config)
        if config.get("unmanaged"):
            problems += _by_hand(config, (raw.get("searcher") or {}).get(_AT_ONCE) is not None, made)
        else:
            problems += too_many_at_once(config, made.trials_total)
    except SearcherConfigError as error:
        path, _, message = str(error).partition(": ")
        place = path if message and path.startswith(("searcher", "hyperparameters", "stopping")) else "searcher"
        problems.append(Problem(place, message if place == path else str(error)))
    _refuse(problems)
    warnings = [problem for problem in expconf.in_order(problems) if problem.level == "warning"]
    return PreparedConfig(config, warnings, given)


def _laid(raw: dict[str, Any], layers: ConfigLayers) -> tuple[dict[str, Any], list[GivenView]]:
    """Return a config between its layers and the config policies, and what was given to it."""
    laid, storage = layers.under(raw, slots_per_trial), layers.settings.default_checkpoint_storage
    if storage:
        # A block that only says what to keep takes its place from the cluster's default.
        laid.config = expconf.merge(laid.config, {"checkpoint_storage": storage})
    made, fixed = layers.rules.over(laid.config)
    return made, [*laid.views, *fixed]


def _searcher(config: dict[str, Any]) -> Searcher:
    stopping, space = config.get("stopping") or (), config.get("hyperparameters") or {}
    return make_searcher(config["searcher"], space, seed_of(config), stopping=stopping)


def _by_hand(config: dict[str, Any], limited: bool, made: Searcher) -> list[Problem]:
    """Complete and judge the config of trials that users evaluate by hand.

    Unless the config says how many there may be at a time, the search begins with one: asking for more raises that. A
    trial that is created when it is asked for is chosen by all results so far.
    """
    if made.wants_checkpoints:
        name = config["searcher"]["name"]
        message = f"{name} starts trials from checkpoints of others, which an unmanaged experiment does not have"
        return [
            Problem("searcher.name", message, "use another method, or leave out `unmanaged` and give an entrypoint")
        ]
    searcher = config["searcher"]
    if not limited and _AT_ONCE in searcher:
        fewest = {**searcher, _AT_ONCE: int(searcher.get("seeds") or 1)}
        try:
            _searcher({**config, "searcher": fewest})
        except SearcherConfigError:  # a method that needs more of them
            return []
        config["searcher"] = fewest
    return []


def named_images(image: str | dict[str, str | None]) -> dict[str, str]:
    """Return the images that a config names, by kind of slots.

    Determined's images, which stand for kinds that the config does not name, are left out: no cluster has them, and a
    node that looked for one would ask Docker Hub.
    """
    if isinstance(image, str):
        return dict.fromkeys(DEVICE_KINDS, image)
    names = {"cuda": image.get("gpu"), **{kind: image[kind] for kind in DEVICE_KINDS if image.get(kind)}}
    return {kind: name for kind, name in names.items() if name}


def raw_of(request: CreateExperiment) -> tuple[Any, list[Problem]]:
    """Return the config as it was written, and what is wrong with its text."""
    if request.config is not None:
        return request.config, []
    if request.config_yaml is None:
        return None, [Problem("", "there is no config: send `config` or `config_yaml`")]
    return expconf.load_yaml(request.config_yaml, "config")


def _refuse(problems: Iterable[Problem]) -> None:
    ordered = expconf.in_order(problems)
    if expconf.errors_of(ordered):
        raise ConfigError(ordered)


def _draw_open(config: dict[str, Any], draw: random.Random) -> None:
    if not config.get("name"):
        config["name"] = f"Experiment ({_generated_name(draw)})"
    reproducibility = config.get("reproducibility") or {}
    if reproducibility.get("experiment_seed") is None:
        config["reproducibility"] = {**reproducibility, "experiment_seed": draw.randrange(MAX_SEED + 1)}


def seed_of(config: dict[str, Any]) -> int:
    """Return the experiment's seed, once it is drawn."""
    return int(config["reproducibility"]["experiment_seed"])


# --- what needs the database


def check_references(s: Session, caller: Caller, config: dict[str, Any], bundle: str | None) -> None:
    """Check that the bundle and the warm-start source exist, and that the caller may use both.

    Raises:
        ConfigError: If the warm-start source is not there for this caller.
        BundleError: If the caller never uploaded the bundle, and sees nothing that runs it.
    """
    if bundle is not None and not may_use(s, caller, bundle):
        raise BundleError(f"the bundle {bundle[:80]} is not here", hint="upload it first: PUT bundles/{digest}")
    check_source(s, caller, config)
    check_results(s, caller, config)


# --- the entrypoint and the code


def check_entrypoint(config: dict[str, Any], bundle: Path | None) -> list[Problem]:
    """Check that the script an entrypoint names is in the code that was sent.

    Returns:
        Warnings where the line cannot be checked for sure.

    Raises:
        ConfigError: If it is plainly `python FILE.py` and there is no such file.
        BundleError: If the bundle cannot be read.
    """
    found = _check_search_class(config["searcher"], bundle)
    entrypoint = config.get("entrypoint")
    if expconf.is_trial_class(entrypoint):
        return found + _check_module(str(entrypoint).strip().partition(":")[0], bundle)
    words = entrypoint_words(entrypoint)
    wanted = script_of(words)
    loose = next((word for word in words if _relative_script(word)), None)
    if wanted is None and loose is None:
        return found
    files = set() if bundle is None else bundle_files(bundle)
    if wanted is not None and str(PurePosixPath(wanted)) not in files:
        have = sorted(name for name in files if name.endswith(".py"))[:5]
        hint = f"the code has {', '.join(have)}" if have else "no Python file was sent with the config"
        raise ConfigError([Problem("entrypoint", f"runs {wanted!r}, which is not in the code", hint)])
    names = {PurePosixPath(name).name for name in files}
    if wanted is None and loose is not None and PurePosixPath(loose).name not in names:
        return [*found, Problem("entrypoint", f"names {loose!r}, which is not in the code", None, "warning")]
    return found


def _check_search_class(searcher: dict[str, Any], bundle: Path | None) -> list[Problem]:
    """Check that the module of a custom search's class is in the code; warn if not, as it may be installed.

    Raises:
        ConfigError: The code has a module of nearly that name.
        BundleError: The bundle cannot be read.
    """
    if searcher.get("name") != "custom":
        return []
    top = str(searcher["entrypoint"]).partition(":")[0].partition(".")[0]
    files = set() if bundle is None else bundle_files(bundle)
    there = sorted({name.partition("/")[0].removesuffix(".py") for name in files if name.endswith(".py")})
    if top in there:
        return []
    path, message = "searcher.entrypoint", f"names the module {top!r}, which is not in the code"
    close = difflib.get_close_matches(top, there, 1)
    if close:
        raise ConfigError([Problem(path, message, f"did you mean {close[0]!r}?")])
    return [Problem(path, message, None, "warning")]


def _check_module(module: str, bundle: Path | None) -> list[Problem]:
    """Warn when the module of `module:Class` is not in the code: it may be installed where tasks run."""
    files = set() if bundle is None else bundle_files(bundle)
    path = module.replace(".", "/")
    if {f"{path}.py", f"{path}/__init__.py"} & files:
        return []
    return [Problem("entrypoint", f"names the module {module!r}, which is not in the code", None, "warning")]


def script_of(words: list[str]) -> str | None:
    """Return FILE.py of `python3 FILE.py …`; None for any other command line."""
    if len(words) < 2 or not _PYTHON.fullmatch(words[0]):
        return None
    return words[1] if _relative_script(words[1]) else None


def _relative_script(word: str) -> bool:
    return word.endswith(".py") and not word.startswith(("-", "/", "~", "$"))


def bundle_files(path: Path) -> set[str]:
    """Return the names of the regular files in a bundle, as relative POSIX paths. Nothing is extracted.

    Raises:
        BundleError: It is not a gzipped tar archive, or one that no agent would unpack.
    """
    try:
        with open_bundle(path) as archive:
            return {str(name) for member, name in members(archive, ArchiveLimits()) if member.isfile()}
    except (UnsafeBundle, OSError) as error:
        raise BundleError(f"the bundle cannot be used: {error}") from error


# --- names for experiments that were given none


def _words(text: str) -> list[str]:
    return text.split()


_ADVERBS = _words(
    "boldly brightly calmly deeply eagerly easily finely freely gently gladly kindly lightly merrily mildly"
    " neatly nicely openly plainly quickly quietly rapidly really smoothly softly swiftly truly warmly wisely"
)
_ADJECTIVES = _words(
    "amber brave bright calm clever cosmic crisp curious daring early fair fluent golden honest humble keen"
    " lively lucid mellow modest noble patient polite quick quiet ready sharp silver steady sunny tidy vivid"
)
_ANIMALS = _words(
    "badger beaver bison crane dolphin eagle falcon ferret finch gecko heron ibex jackal kestrel koala lemur"
    " lynx marten moose newt otter owl panda penguin puffin quail raven robin seal stork tapir walrus wombat"
)


def _generated_name(draw: random.Random) -> str:
    """Draw three words joined by hyphens, such as `calmly-vivid-otter`."""
    return f"{draw.choice(_ADVERBS)}-{draw.choice(_ADJECTIVES)}-{draw.choice(_ANIMALS)}"
