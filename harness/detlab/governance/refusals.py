"""Why governed training is refused: stable codes, each with the next thing to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Literal

from detlab.errors import DetlabError

_PLAN = "det governance plan CONFIG --model MODULE:FACTORY shows what each source may train"

REFUSALS: Mapping[str, str] = MappingProxyType(
    {
        "POLICY": "det config check CONFIG names the mistakes of the policy",
        "SOURCE": "declare it in governance.sources, or correct the name that the samples carry",
        "UNMATCHED": f"add a rule that matches it, last {{source: '*', layers: '.*', scale: 1.0}}; {_PLAN}",
        "STARVED": f"open it to one source, or freeze it with requires_grad_(False); {_PLAN}",
        "TIED": "give both names the same scales, or untie the parameters",
        "DEAD": f"correct the expression, or take it out; {_PLAN}",
        "TARGET": "correct governance.targets: no layer has two targets of a source, and what is closed to it has 0;"
        f" {_PLAN}",
        "LEVEL": "docs/explanation/governance.md says what each level needs; write `level: direct` where less will do",
        "CLIP": "leave governance.clip out, and clip with detlab.pytorch.governance.ClipNorm: it keeps sources apart",
        "COUPLING": "mix no samples of a batch: GroupNorm in place of BatchNorm, losses of each sample alone; or write"
        " `engine: microbatch`, which trains on each source of a batch by itself: that changes the statistics of"
        " batch norm, so it is never chosen for you",
        "ENGINE": "use layers that are routed (Linear, Conv, Embedding, LayerNorm, GroupNorm), `engine: dual`,"
        " `engine: microbatch` for all else, or the same scale for all sources;"
        " docs/explanation/governance.md says what each engine needs",
        "ROWS": "keep the samples of the batch in their order in the first dimension of what each layer gets",
        "SCALAR": "give context.backward() one loss per sample, as of reduction='none', with shape [batch]",
        "SAMPLES": "label the data set with detlab.governance.label or combine, or pass source_ids=",
        "BYPASS": "call context.backward(losses) alone, and each layer itself rather than a function with its weight",
        "LEAK": "a layer was used around the router: call the module, not torch.nn.functional with its weight",
        "OPTIMIZER": "change parameters by context.step_optimizer(optimizer) alone, after context.wrap_optimizer",
        "REVOKED": "take the source out of the data and of the policy, and train without it, or agree on a later day;"
        " one that was isolated is taken out of a copy of the weights by det governance ablate SOURCE UUID;"
        " det governance sources lists what was withdrawn",
        "SIG": "det governance verify UUID says what is wrong; go on from one that has evidence, or start anew",
        "FILE": "restore the files from a copy; det checkpoint list EXPERIMENT shows earlier checkpoints",
        "CHAIN": "go on from the newest checkpoint; det governance verify UUID shows where the ledger breaks",
        "STRUCT": "train the model that was saved, or begin a new experiment from the checkpoint",
        "DATA": "give the data set that was trained on, or begin a new experiment from the checkpoint",
        "STATE": "the checkpoint cannot be continued bit by bit: begin a new experiment from it",
        "PROFILE": "the weights are not those that were measured: restore the checkpoint from a copy",
        "ENV": "update detlab where it runs, or choose a pool that enforces the policy: det governance agents",
        "CANARY": "docs/how-to/govern-what-sources-train.md says what canaries need; without them memorisation is not"
        " measured: take governance.canaries out",
        "COVER": "label the samples that have no declared source, or lower governance.constraints.provenance_coverage",
    }
)
"""Code -> the next thing to do. Later codes are added; none changes its meaning."""


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """One reason why training is refused, or one thing that is odd.

    Attributes:
        code: A key of `REFUSALS`.
        message: What, where and why, in one line.
        level: `error` refuses, `warning` does not.
    """

    code: str
    message: str
    level: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        mark = "warning: " if self.level == "warning" else ""
        return f"{mark}{self.code}: {self.message}"


class GovernanceError(DetlabError):
    """Training that the policy does not allow, or that cannot be held to it.

    Args:
        refusals: All of them, at least one.
        headline: What cannot go on.

    Attributes:
        refusals: As given.
    """

    default_code = "governance.refused"

    def __init__(self, refusals: Iterable[Refusal], headline: str = "governed training is refused:") -> None:
        self.refusals = list(refusals)
        codes = list(dict.fromkeys(one.code for one in self.refusals))
        hints = "\n".join(f"{code}: {REFUSALS[code]}" for code in codes)
        message = "\n".join([headline, *(f"  {one}" for one in self.refusals)])
        super().__init__(message, hint=hints, code=f"governance.{codes[0].lower()}" if len(codes) == 1 else None)

    @classmethod
    def of(cls, code: str, message: str) -> GovernanceError:
        """Return the error of a single refusal."""
        return cls([Refusal(code, message)])
