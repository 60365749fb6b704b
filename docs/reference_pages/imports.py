"""The page of what `det config import` makes of other tools' files, from the tables that it converts by."""

from __future__ import annotations

from reference_pages.markdown import page, table


def imports() -> str:
    """Return the page."""
    intro = """
What [`det config import`](cli.md#det-config-import) makes of each key. A key that is not listed is left out, too, and
named like the others. How to: [Come from Katib](../how-to/come-from-katib.md),
[Come from W&B sweeps](../how-to/come-from-wandb-sweeps.md).

`job`, `pod`, `container` and `replica` stand for a `Job`'s spec, a pod's spec, the main container and the replicas of
one role (`pytorchReplicaSpecs.Master`), wherever a trial template has them.
"""
    return page("Imported configs", intro, *_katib(), *_wandb())


def _katib() -> list[str]:
    from detlab.schemas.imports.katib import keys, search

    algorithms = [
        (f"`{name}`", f"`{found.method}`", _settings(found.settings), found.differs)
        for name, found in search.ALGORITHMS.items()
    ]
    return [
        "## Katib: algorithms",
        table(("algorithm", "`searcher.name`", "settings", "what differs"), algorithms),
        "Refused by name:",
        table(("algorithm", "why"), [(f"`{name}`", why) for name, why in search.REFUSED.items()]),
        "## Katib: jobs",
        _jobs(),
        "## Katib: keys",
        _keys(keys.TARGETS, keys.REASONS),
    ]


def _jobs() -> str:
    from detlab.schemas.imports.katib import jobs

    rows = [
        ("`Job`", "its one pod: the command runs once, with all GPUs of the pod on one node"),
        ("`TrainJob`", f"of the runtime `{jobs.TORCH_RUNTIME}`: one process for each slot"),
    ]
    for kind, why in jobs.REPLICAS.items():
        several = f"several are refused: {why}" if why else "several: one process for each slot"
        rows.append((f"`{kind}`", f"one replica: like a `Job`; {several}"))
    rows += [(f"`{kind}`", f"refused: it {why}") for kind, (why, _) in jobs.REFUSED.items()]
    return table(("kind", "what becomes of it"), rows)


def _settings(settings: dict[str, str]) -> str:
    return ", ".join(f"`{name}` → `{to}`" for name, to in settings.items())


def _wandb() -> list[str]:
    from detlab.schemas.imports.wandb import spaces, sweep

    methods = [(f"`{name}`", f"`{found.alone}`", f"`{found.halving}`") for name, found in sweep.METHODS.items()]
    spread = [(f"`{name}`", becomes) for name, (_, _, becomes) in spaces.DISTRIBUTIONS.items()]
    return [
        "## W&B sweeps: methods",
        table(("method", "`searcher.name`", "with `early_terminate`"), methods),
        "## W&B sweeps: distributions",
        table(("distribution", "hyperparameter"), spread),
        "## W&B sweeps: keys",
        _keys(sweep.TARGETS, sweep.REASONS),
    ]


def _keys(targets: dict[str, str], reasons: dict[str, str]) -> str:
    rows = [(f"`{key}`", f"`{to}`") for key, to in targets.items()]
    return table(
        ("key", "goes to, or is left out because"), [*rows, *((f"`{key}`", why) for key, why in reasons.items())]
    )
