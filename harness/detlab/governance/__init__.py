"""Which source of samples may train which parameters: policies, compiled against a model, and where samples come from.

    policy = Policy.of(config["governance"])                 # the block of an experiment config
    plan = compile_policy(policy, parameters_of(model))      # the matrix S, or GovernanceError with all problems
    plan.policy_hash, plan.s_hash

Pure: no torch, file, network or clock is touched here. What holds training to a plan is `detlab.pytorch.governance`.
"""

from detlab.governance.matrix import Plan, TrainedParameter, compile_policy, parameters_from, parameters_of
from detlab.governance.policy import Policy, Source, SourceRule
from detlab.governance.refusals import REFUSALS, GovernanceError, Refusal
from detlab.governance.sources import SourcedDataset, combine, label, source_lookup

__all__ = [
    "REFUSALS",
    "GovernanceError",
    "Plan",
    "Policy",
    "Refusal",
    "Source",
    "SourceRule",
    "SourcedDataset",
    "TrainedParameter",
    "combine",
    "compile_policy",
    "label",
    "parameters_from",
    "parameters_of",
    "source_lookup",
]
