"""Names of what a pool can enforce of a policy, and what a config needs of the pool that it runs in.

A name is `gov.WHAT@VERSION`: a level (`gov.direct@1`), an engine (`gov.fused@1`) or signed evidence (`gov.ledger@1`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LEVELS = {"direct": "gov.direct@1", "isolated": "gov.isolated@1", "dp": "gov.dp@1"}
ENGINES = {"fused": "gov.fused@1", "dual": "gov.dual@1", "microbatch": "gov.microbatch@1"}
LEDGER = "gov.ledger@1"
CAPABILITIES = (*LEVELS.values(), *ENGINES.values(), LEDGER)
"""All that a config may require."""
ENFORCED = frozenset({LEVELS["direct"], LEVELS["isolated"], *ENGINES.values(), LEDGER})
"""What this detlab enforces where it runs; the level `dp` too where Opacus is installed, which each agent attests."""
CAPABILITY = re.compile(r"gov\.[a-z]{1,30}@[0-9]{1,3}")


def required_by(config: Mapping[str, Any]) -> frozenset[str]:
    """Return what the pool must enforce in which something of this config runs.

    That is what `resources.requires` names, and what a strict policy needs: its levels, its engine, and signed
    evidence. Under `enforce: audit` a violation is only logged, so nothing follows from the policy.
    """
    asked = (config.get("resources") or {}).get("requires") or ()
    return frozenset(map(str, asked)) | _of_policy(config.get("governance"))


def _of_policy(block: Any) -> frozenset[str]:
    if not isinstance(block, Mapping) or block.get("enforce", "strict") != "strict":
        return frozenset()
    levels = {block.get("level") or "direct"}
    levels |= {rule["level"] for rule in block.get("rules") or () if isinstance(rule, Mapping) and rule.get("level")}
    engine = ENGINES.get(str(block.get("engine")))
    return frozenset({*(LEVELS[one] for one in levels if one in LEVELS), *([engine] if engine else []), LEDGER})
