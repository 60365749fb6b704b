"""Targets for what sources give to layers: how near they are met, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from detlab.governance import GovernanceError, Plan, Policy, TrainedParameter, compile_policy
from detlab.governance.picture import text
from detlab.governance.targets import conformance, target_groups
from detlab.pytorch.governance import Governed, parameters_of_models
from detlab.pytorch.governance.meter import Meter
from detlab.schemas.expconf import check, errors_of, resolve

NAMES = ("embed.weight", "blocks.0.fc.weight", "blocks.0.fc.bias", "head.weight", "head.bias")
COLUMNS = tuple(TrainedParameter(name, (2, 2)) for name in NAMES)
RULES = [{"source": "*", "layers": ".*", "scale": 1.0}, {"source": "web", "layers": "@deep", "scale": 0.0}]
PLAIN: dict[str, Any] = {
    "sources": [{"name": "trusted"}, {"name": "web"}],
    "rules": RULES,
    "depth": {"deep": ["embed"], "surface": ["head"]},
}
SPLIT = {"@deep": 0.25, "@surface": 0.75}


def plan_of(targets: Any, **more: Any) -> Plan:
    return compile_policy(Policy.of({**PLAIN, "targets": targets, **more}), COLUMNS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((1, 0, 0, 2, 1), 1.0),  # a quarter and three quarters
        ((2, 0, 0, 1, 1), 0.75),  # a half each: half of 0.25 + 0.25
        ((0, 1, 1, 0, 2), 0.5),  # nothing, a half elsewhere, a half: half of 0.25 + 0.5 + 0.25
        ((0, 3, 5, 0, 0), 0.0),
        ((0, 0, 0, 0, 0), None),
        ((float("nan"), 0, 0, 0, 1), None),
    ],
)
def test_conformance_is_one_minus_the_total_variation_distance_over_groups_of_layers(given, expected):
    plan = plan_of({"trusted": SPLIT})
    targets = plan.policy.targets["trusted"]
    groups = target_groups(targets, plan.names)
    assert groups == [[0], [3, 4], [1, 2]]
    assert conformance(given, targets, groups) == expected


def test_each_source_with_a_target_has_a_number_and_the_worst_is_the_plain_metric():
    meter = Meter(plan_of({"trusted": SPLIT, "web": {"head": 1}}), "cpu", NAMES)
    depth = torch.zeros(3, len(NAMES), dtype=torch.float64)
    assert meter.report(depth, 0.0)["gov/conformance"] == 1.0
    depth[0] = torch.tensor([2, 0, 0, 1, 1])
    depth[1] = torch.tensor([0, 3, 1, 4, 2])
    told = {name: one for name, one in meter.report(depth, 0.0).items() if "conformance" in name}
    assert told == {"gov/conformance": 0.6, "gov/conformance/trusted": 0.75, "gov/conformance/web": 0.6}
    assert "gov/conformance" not in Meter(plan_of(None), "cpu", NAMES).report(depth, 0.0)


def test_policies_without_targets_have_the_hash_that_they_had_before_there_were_any():
    plain = {"sources": PLAIN["sources"], "rules": RULES[:1]}
    before = "sha256:a42694366a82998d2bd551a7bf7f04a3beeac01c0228419eb390eb92962715fd"
    assert Policy.of(plain).policy_hash == Policy.of({**plain, "targets": None}).policy_hash == before
    assert Policy.of({**plain, "targets": {"web": {".*": 1}}}).policy_hash != before
    assert plan_of(None).s_hash == plan_of({"trusted": SPLIT}).s_hash


@pytest.mark.parametrize(
    ("targets", "more", "path", "said"),
    [
        ({"wbe": {"head": 1}}, {}, "targets.wbe", "did you mean `web`"),
        ({"web": {"@surfce": 1}}, {}, "targets.web.@surfce", "did you mean `@surface`"),
        ({"web": {"(head": 1}}, {}, "targets.web.(head", ""),
        ({"web": {"head": 0.5, "embed": 0.25}}, {}, "targets.web", "sum 0.75"),
        ({"web": {"head": 1.5}}, {}, "targets.web.head", "at most 1"),
        ({"web": {"head": -1, "embed": 2}}, {}, "targets.web.head", "at least 0"),
        ({"web": {"head": "all"}}, {}, "targets.web.head", "number"),
        ({"web": {}}, {}, "targets.web", "sum 0"),
        ({}, {}, "targets", "names no source"),
        ({"web": SPLIT}, {}, "targets.web.@deep", "close these layers to 'web'"),
        (
            {"web": {"head": 1}},
            {"level": "dp", "dp": {"max_grad_norm": 1, "target_epsilon": 8, "delta": 1e-5}, "rules": RULES[:1]},
            "targets",
            "level dp",
        ),
        (None, {"constraints": {"depth_conformance": {"min": 0.8}}}, "constraints.depth_conformance", "by targets"),
        (
            {"web": {"head": 1}},
            {"constraints": {"depth_conformance": {"max": 0.8}}},
            "constraints.depth_conformance.max",
            "set `min`",
        ),
        (
            {"web": {"head": 1}},
            {"constraints": {"depth_conformance": {"min": 80}}},
            "constraints.depth_conformance.min",
            "1 at most",
        ),
    ],
)
def test_mistakes_of_targets_are_found_without_a_model(targets, more, path, said):
    policy = {**PLAIN, "targets": targets, **more}
    raw = {"searcher": {"name": "single", "metric": "loss"}, "entrypoint": "python3 t.py", "governance": policy}
    found = {
        problem.path.replace('"', "").replace("[", ".").replace("]", ""): problem for problem in errors_of(check(raw))
    }
    assert f"governance.{path}" in found, found
    assert said in str(found[f"governance.{path}"])
    with pytest.raises(GovernanceError, match="POLICY"):
        Policy.of(policy)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ({"web": {"embed": 0.5, "head": 0.5}}, "gives 0.5 to embed, and the rules close all of it to 'web'"),
        ({"web": {"hed": 1.0}}, "gives 1 to hed, which matches no parameter"),
        ({"web": {"head": 0.5, "head.bias": 0.5}}, "head.bias is in two targets of 'web'"),
    ],
)
def test_targets_that_no_training_of_the_model_could_meet_are_refused(targets, said):
    with pytest.raises(GovernanceError, match=said) as refused:
        plan_of(targets)
    assert {one.code for one in refused.value.refusals} == {"TARGET"}


def test_a_plan_tells_targets_and_what_they_leave_out():
    plan = plan_of({"web": {"@surface": 0.75, "blocks.0.fc.weight": 0.25, "embed": 0}})
    shown = text(plan).splitlines()
    assert "target of web: 0.75 to @surface, 0.25 to blocks.0.fc.weight, 0 to embed" in shown
    assert any("may train blocks.0.fc.bias, which no target of it names: that counts as 0" in line for line in shown)
    assert plan.as_dict()["targets"] == {"web": {"@surface": 0.75, "blocks.0.fc.weight": 0.25, "embed": 0.0}}
    assert "targets" not in plan_of(None).as_dict()


def test_a_bound_of_conformance_becomes_one_of_the_search_and_stops_trials():
    policy = {**PLAIN, "targets": {"web": {"@surface": 1}}, "constraints": {"depth_conformance": {"min": 0.8}}}
    raw = {"searcher": {"name": "random", "metric": "loss", "max_trials": 2}, "entrypoint": "python3 t.py"}
    full = resolve({**raw, "governance": policy})
    assert full["searcher"]["constraints"]["gov/conformance"]["min"] == 0.8
    (stop,) = full["stopping"]
    assert (stop["metric"], stop["lower"], stop.get("upper")) == ("gov/conformance", 0.8, None)
    assert "confirm" not in full["searcher"]
    assert resolve(full) == full
    loose = {**raw["searcher"], "constraints": {"gov/conformance": {"min": 0.5}}}
    found = errors_of(check({**raw, "searcher": loose, "governance": policy}))
    assert [one.path for one in found] == ["searcher.constraints.gov/conformance"]


def govern(policy: Any, model: Any) -> Governed:
    return Governed(compile_policy(Policy.of(policy), parameters_of_models([model])), [model])


def test_targets_of_what_nobody_sees_are_refused():
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.LSTM(3, 4, batch_first=True)
            self.head = nn.Linear(4, 2)

    policy = {"sources": PLAIN["sources"], "rules": RULES[:1], "targets": {"web": {"head": 1}}}
    with pytest.raises(GovernanceError, match=r"TARGET: what 'web' gives to body\.weight_ih_l0 and 3 more is not seen"):
        govern(policy, Recurrent())
    closed = [*RULES[:1], {"source": "web", "layers": "body", "scale": 0}]
    govern({**policy, "rules": closed}, Recurrent())


def test_targets_are_refused_in_a_compiled_model_where_nobody_can_look():
    model = torch.compile(nn.Linear(3, 2), backend="eager")
    policy = {"sources": PLAIN["sources"], "rules": RULES[:1], "targets": {"web": {".*": 1}}}
    governed = govern(policy, model)
    with governed.batch(["web", "web"]):
        governed.backward(model(torch.ones(2, 3)).sum(1))
    with pytest.raises(GovernanceError, match="TARGET: a model is compiled"):
        governed.metrics()
