"""Forks in a notebook: a cell with the config of an earlier experiment, that runs with its code."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from detlab.client.submission import added_keys, config_mapping, fork_of
from detlab.schemas.expconf import without_defaults
from detlab.schemas.expconf.raw.dumping import dump_yaml
from detlab_magics.cells.prepare import PreparedSubmission
from detlab_magics.plaintext import plain

if TYPE_CHECKING:
    from detlab_magics.kernel import KernelSession

_AT_ONCE = "max_concurrent_trials"


def cell_of(session: KernelSession, experiment_id: int) -> str:
    """Return the cell that submits another experiment like an earlier one: what differs from the defaults."""
    whole = config_mapping(fork_of(session.client().get_experiment(experiment_id).view, {}).config)
    config = without_defaults(whole)
    if whole.get("unmanaged") and _AT_ONCE in (whole.get("searcher") or {}):  # left out, it begins with one
        config["searcher"] = {**(config.get("searcher") or {}), _AT_ONCE: whole["searcher"][_AT_ONCE]}
    text = dump_yaml(config)
    # In a cell `${name}` is a variable of the notebook, and `$${` the text itself.
    return f"%%det_experiment --fork {experiment_id}\n{text.replace('${', '$${')}"


def of_experiment(
    session: KernelSession, experiment_id: int, prepared: PreparedSubmission, *, own_code: bool
) -> PreparedSubmission:
    """Return what is submitted as a fork: with the code of the experiment, unless a folder of one's own is sent."""
    view = session.client().get_experiment(experiment_id).view
    for said in added_keys(view.config or {}, prepared.config):
        print(plain(said, 300))
    return dataclasses.replace(prepared, forked_from=view.id, code=None if own_code else view.bundle, own_code=own_code)
