"""Policies: what their text must say, what they become for a model, and what is refused."""

from __future__ import annotations

import datetime
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detlab.governance import (
    REFUSALS,
    GovernanceError,
    Policy,
    TrainedParameter,
    combine,
    compile_policy,
    label,
    parameters_from,
    source_lookup,
)
from detlab.governance.sources import rows_of
from detlab.schemas.expconf import ExperimentConfig, check, errors_of, resolve, unsupported_keys

NAMES = ("embed.weight", "blocks.0.fc.weight", "blocks.0.fc.bias", "blocks.10.fc.weight", "head.weight", "head.bias")
COLUMNS = tuple(TrainedParameter(name, (2, 2)) for name in NAMES)
OPEN = {"source": "*", "layers": ".*", "scale": 1.0}


def block(*rules, sources=("trusted", "web"), **more):
    named = [{"name": one} if isinstance(one, str) else one for one in sources]
    return {"sources": named, "rules": [OPEN, *rules], **more}


def plan_of(*rules, columns=COLUMNS, kinds=(), **more):
    return compile_policy(Policy.of(block(*rules, **more)), columns, kinds=kinds)


def codes(error: pytest.ExceptionInfo[GovernanceError]) -> set[str]:
    return {one.code for one in error.value.refusals}


def test_the_last_rule_that_matches_counts_by_parameter_or_by_the_module_that_holds_it():
    plan = plan_of(
        {"source": "web", "layers": "blocks.0", "scale": 0},
        {"source": "web", "layers": r"head\.bias", "scale": 0.5},
        {"source": "*", "layers": "@deep", "scale": 0.25},
        {"source": "trusted", "layers": "embed", "scale": 1},
        depth={"deep": ["embed"]},
    )
    rows = dict(zip(plan.sources, plan.scales, strict=True))
    assert rows["trusted"] == (1, 1, 1, 1, 1, 1)
    assert rows["web"] == (0.25, 0, 0, 1, 1, 0.5)


def test_an_expression_matches_whole_names_so_that_block_1_is_not_block_10():
    plan = plan_of({"source": "web", "layers": r"blocks\.1", "scale": 0})
    assert plan.scales[1] == (1,) * 6
    assert [one.code for one in plan.warnings] == ["DEAD"]


def test_the_hash_of_s_is_of_names_and_shapes_too():
    first = plan_of({"source": "web", "layers": "head", "scale": 0})
    renamed = plan_of(
        {"source": "web", "layers": "head", "scale": 0},
        columns=(*COLUMNS[:-1], TrainedParameter("head.offset", (2, 2))),
    )
    reshaped = plan_of(
        {"source": "web", "layers": "head", "scale": 0}, columns=(*COLUMNS[:-1], TrainedParameter("head.bias", (3,)))
    )
    assert first.policy_hash == renamed.policy_hash == reshaped.policy_hash
    assert len({first.s_hash, renamed.s_hash, reshaped.s_hash}) == 3


def test_defaults_written_out_do_not_change_the_hash_of_a_policy_and_meaning_does():
    short, long = Policy.of(block()), Policy.of(block(enforce="strict", default="deny", version=1))
    assert short.policy_hash == long.policy_hash
    assert Policy.of(block(normalize="per_layer")).policy_hash != short.policy_hash


def test_a_mixture_may_train_what_all_it_was_made_from_may_train():
    mixed = {"name": "mixup", "parents": ["trusted", "web"]}
    grandchild = {"name": "again", "parents": ["mixup"]}
    plan = plan_of({"source": "web", "layers": "head", "scale": 0.25}, sources=("trusted", "web", mixed, grandchild))
    rows = dict(zip(plan.sources, plan.scales, strict=True))
    assert rows["mixup"] == rows["again"] == (1, 1, 1, 1, 0.25, 0.25)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["*", "trusted", "web"]),
            st.sampled_from(["embed", "head", r"blocks\..*", ".*"]),
            st.sampled_from([0.0, 0.25, 1.0, 2.0]),
        ),
        max_size=6,
    ),
    st.permutations(list(range(len(COLUMNS)))),
)
@settings(deadline=None)
def test_the_matrix_is_what_reading_the_rules_one_by_one_gives_in_any_order_of_parameters(rules, order):
    policy = Policy.of(
        {
            "sources": [{"name": "trusted"}, {"name": "web"}],
            "rules": [OPEN, *({"source": s, "layers": p, "scale": k} for s, p, k in rules)],
        }
    )
    heads = {"embed": "embed", "head": "head", r"blocks\..*": "blocks.", ".*": ""}
    expected = {(source, name): 1.0 for source in ("trusted", "web") for name in NAMES}
    for source, pattern, scale in rules:
        for own, name in itertools.product(("trusted", "web"), NAMES):
            if source in ("*", own) and name.startswith(heads[pattern]):
                expected[own, name] = scale
    starved = [name for name in NAMES if expected["trusted", name] == expected["web", name] == 0]
    columns = [COLUMNS[at] for at in order]
    if starved:
        with pytest.raises(GovernanceError) as refused:
            compile_policy(policy, columns)
        assert codes(refused) == {"STARVED"}
        return
    plan = compile_policy(policy, columns)
    found = {
        (source, column.name): plan.scales[row][at]
        for row, source in enumerate(plan.sources)
        for at, column in enumerate(plan.parameters)
    }
    assert found == expected
    assert plan.s_hash == compile_policy(policy, columns).s_hash


@pytest.mark.parametrize(
    ("rules", "more", "code", "said"),
    [
        (
            [{"source": "web", "layers": "head", "scale": 0}, {"source": "trusted", "layers": "head", "scale": 0}],
            {},
            "STARVED",
            "no source may train head.weight",
        ),
        (
            [{"source": "web", "layers": "shared", "scale": 0}],
            {"columns": (TrainedParameter("embed.weight", (2,), aliases=("shared.weight",)),)},
            "TIED",
            "tied to shared.weight",
        ),
        ([], {"kinds": ["BatchNorm2d"]}, "COUPLING", "BatchNorm2d mixes the samples"),
        ([], {"columns": (TrainedParameter("norm.weight", (2,), kind="BatchNorm1d"),)}, "COUPLING", "BatchNorm1d"),
        ([], {"columns": ()}, "UNMATCHED", "no parameter"),
    ],
)
def test_what_does_not_fit_a_model_is_refused_with_its_code(rules, more, code, said):
    with pytest.raises(GovernanceError, match=said) as refused:
        plan_of(*rules, **more)
    assert codes(refused) == {code}
    assert refused.value.code == f"governance.{code.lower()}"
    assert REFUSALS[code] in str(refused.value)


def test_a_parameter_that_no_rule_matches_is_refused_unless_the_default_allows_it():
    only = {"sources": [{"name": "web"}], "rules": [{"source": "web", "layers": "head", "scale": 1}]}
    with pytest.raises(GovernanceError, match=r"web.*embed\.weight") as refused:
        compile_policy(Policy.of(only), COLUMNS)
    assert codes(refused) == {"UNMATCHED"}
    assert len(refused.value.refusals) == 4
    plan = compile_policy(Policy.of({**only, "default": "allow"}), COLUMNS)
    assert plan.scales == ((1,) * 6,)
    assert plan.default == (1,) * 6


def test_all_mistakes_of_a_model_come_at_once():
    with pytest.raises(GovernanceError) as refused:
        plan_of({"source": "*", "layers": "head", "scale": 0}, kinds=["BatchNorm1d"])
    assert codes(refused) == {"STARVED", "COUPLING"}
    assert refused.value.code == "governance.refused"


def test_one_factor_for_all_sources_is_odd():
    plan = plan_of({"source": "*", "layers": "head", "scale": 0.5})
    assert ["Adam" in one.message for one in plan.warnings] == [True]


@pytest.mark.parametrize(
    ("policy", "path", "said"),
    [
        (block({"source": "wbe", "layers": "head", "scale": 0}), "governance.rules[1].source", "did you mean `web`"),
        (
            block({"source": "web", "layers": "@dep", "scale": 0}, depth={"deep": ["embed"]}),
            "governance.rules[1].layers",
            "did you mean `@deep`",
        ),
        (block({"source": "web", "layers": "(head", "scale": 0}), "governance.rules[1].layers", ""),
        (block({"source": "web", "layers": "head", "scale": -1}), "governance.rules[1].scale", "at least 0"),
        (block({"source": "web", "layers": "head", "scale": float("inf")}), "governance.rules[1].scale", "finite"),
        (block({"source": "web", "layers": "head"}), "governance.rules[1].scale", "required"),
        (block(sources=("web", "web")), "governance.sources[1].name", "declared twice"),
        (block(sources=({"name": "a b"},)), "governance.sources[0].name", "letters, digits"),
        (block(sources=({"name": "a", "parents": ["b"]},)), "governance.sources[0].parents[0]", "no source is called"),
        (
            block(sources=({"name": "a", "parents": ["b"]}, {"name": "b", "parents": ["a"]})),
            "governance.sources[1].parents",
            "made from itself",
        ),
        (block(sources=({"name": "a", "manifest": "sha256:12"},)), "governance.sources[0].manifest", "64 hexadecimal"),
        (block(sources=({"name": "a", "expires": "soon"},)), "governance.sources[0].expires", "must be a day"),
        (block(sources=()), "governance.sources", ""),
        (block(constraints={"leak_mas": {"max": 0}}), "governance.constraints.leak_mas", "did you mean `leak_mass`"),
        (block(constraints={"leak_mass": {}}), "governance.constraints.leak_mass", "has no bound"),
        (block(depth={"deep": []}), "governance.depth.deep", "names no layer"),
        ({"sources": [{"name": "web"}]}, "governance.rules", "default denies"),
        (
            block({"source": "web", "layers": "head", "scale": 1, "level": "isolated"}, clip="global"),
            "governance.clip",
            "per_group",
        ),
        (block(rulse=[]), "governance.rulse", "unknown key"),
    ],
)
def test_mistakes_of_the_text_are_found_without_a_model(policy, path, said):
    raw = {"searcher": {"name": "single", "metric": "loss"}, "entrypoint": "python3 t.py", "governance": policy}
    found = errors_of(check(raw))
    assert path in [problem.path for problem in found], found
    assert said in str(next(problem for problem in found if problem.path == path))
    with pytest.raises(GovernanceError) as refused:
        Policy.of(policy)
    assert codes(refused) == {"POLICY"}


def test_a_source_is_refused_after_its_last_day():
    policy = Policy.of(block(sources=({"name": "web", "expires": "2027-06-30"},)))
    assert policy.expired(datetime.date(2027, 6, 30)) == []
    assert [one.code for one in policy.expired(datetime.date(2027, 7, 1))] == ["REVOKED"]


def test_parameters_are_read_from_a_list():
    assert parameters_from({"head.weight": [10, 64]}) == [TrainedParameter("head.weight", (10, 64))]
    assert parameters_from([{"name": "a", "shape": [1]}, "b"]) == [
        TrainedParameter("a", (1,)),
        TrainedParameter("b", ()),
    ]
    for bad in (None, 3, [3], {"a": "x"}, [{"shape": [1]}], {"a": [True]}, {"": [1]}):
        with pytest.raises(GovernanceError, match="maps names to shapes"):
            parameters_from(bad)


def test_samples_know_their_sources_through_joined_and_partial_data_sets():
    class Subset:
        dataset = combine({"trusted": [1, 2], "nothing": [], "web": [3, 4, 5]})
        indices = (4, 0)

    joined = Subset.dataset
    assert [joined[at] for at in range(5)] == joined.__getitems__(list(range(5))) == [1, 2, 3, 4, 5]
    assert [joined.source_of(at) for at in range(5)] == ["trusted"] * 2 + ["web"] * 3
    lookup = source_lookup(Subset())
    assert lookup is not None
    assert [lookup(0), lookup(1)] == ["web", "trusted"]
    assert source_lookup([1, 2]) is None
    assert label([7, 8], ["a", "b"]).source_of(1) == "b"
    assert label([7, 8], lambda index: None).source_of(1) is None
    with pytest.raises(GovernanceError, match="2 names of sources were given for 3 samples"):
        label([1, 2, 3], ["a", "b"])
    with pytest.raises(IndexError):
        joined.source_of(5)


def test_a_sample_of_an_unknown_source_is_refused_unless_the_default_allows_it():
    index = {"trusted": 0, "web": 1}
    assert rows_of(["web", "trusted"], index, without=None) == [1, 0]
    assert rows_of(["web", "other", None], index, without=2) == [1, 2, 2]
    for names, said in ((["other"], "'other' of a sample is not declared"), ([None], "a sample has no source")):
        with pytest.raises(GovernanceError, match=said) as refused:
            rows_of(names, index, without=None)
        assert codes(refused) == {"SOURCE"}


def test_the_block_as_the_master_writes_it_out_is_the_same_policy_and_plain_json():
    web = {"name": "web", "expires": "2027-06-30", "license": "unknown"}
    given = block({"source": "web", "layers": "head", "scale": 0}, sources=("trusted", web))
    raw = {"searcher": {"name": "single", "metric": "loss"}, "entrypoint": "python3 t.py", "governance": given}
    full = resolve(raw)
    assert json.loads(json.dumps(full))["governance"]["sources"][1]["expires"] == "2027-06-30"
    assert Policy.of(full["governance"]).policy_hash == Policy.of(given).policy_hash
    assert "governance" not in resolve({key: value for key, value in raw.items() if key != "governance"})


def test_a_config_may_ask_for_isolated():
    raw = {"searcher": {"name": "single", "metric": "loss"}, "entrypoint": "python3 t.py"}
    rules = {"source": "web", "layers": "head", "scale": 1, "level": "isolated"}
    config = ExperimentConfig.model_validate(resolve({**raw, "governance": block(rules)}))
    assert not errors_of(unsupported_keys(config))
