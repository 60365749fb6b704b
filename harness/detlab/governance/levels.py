"""What each level promises of a source, and at which one each source of a checkpoint was trained on.

A checkpoint has no level: each source has its own, which follows from all matrices under which it was trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from detlab.governance.isolation import ISOLATED, is_private, own_parameters
from detlab.governance.ledger import UNDECLARED, MatrixRecord, Taint, sources_that_reached
from detlab.governance.refusals import GovernanceError

DIRECT, DP, UNKNOWN = "direct", "dp", "unknown"

SAID = {
    DIRECT: (
        "its loss adds nothing to what is closed to it; not promised: that it has no influence there, since it changes"
        " what is open to it"
    ),
    ISOLATED: (
        "all but its own modules is the same whatever its samples hold; not promised: privacy, nor what its own modules"
        " memorise"
    ),
    DP: (
        "each of its records is protected by epsilon and delta; not promised: people with several records, or several"
        " trials together"
    ),
    UNKNOWN: "a matrix under which it was trained on is not recorded; nothing is promised",
}
"""What each level promises, and what not, in one line."""

AUDIT = "`enforce: audit` tells of violations and goes on, so that no level is promised"


def source_levels(taint: Taint, matrices: Mapping[str, MatrixRecord]) -> dict[str, str]:
    """Return the level of each source that could change a parameter of a checkpoint.

    It is `isolated` only if nothing else was ever trained by it, and nobody else has trained what is its own.

    Args:
        taint: Of the checkpoint.
        matrices: All that it names, by hash.
    """
    known = [matrices[one] for one in sorted({one for hashes in taint.values() for one in hashes}) if one in matrices]
    return {name: _level(name, taint[name], matrices, known) for name in sources_that_reached(taint, matrices)}


def _level(
    source: str, hashes: Iterable[str], matrices: Mapping[str, MatrixRecord], known: Iterable[MatrixRecord]
) -> str:
    named = list(hashes)
    if any(one not in matrices for one in named):
        return UNKNOWN
    if all(is_private(matrices[one]) for one in named if matrices[one].reached(source)):
        return DP
    if source == UNDECLARED:
        return DIRECT
    try:
        own_parameters(source, known)
    except GovernanceError:
        return DIRECT
    return ISOLATED


def level_lines(levels: Iterable[str]) -> dict[str, str]:
    """Return what each of these levels promises and what not, in the order of the table in the docs."""
    found = set(levels)
    return {name: said for name, said in SAID.items() if name in found}


def named_with_level(source: str, level: str) -> str:
    """Return a source with its level for a text; the level is left out where it was not recorded."""
    name = source or "(no declared source)"
    return f"{name} ({level})" if level else name
