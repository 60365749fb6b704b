"""The level `isolated`: nothing but a source's own parameters depends on what it holds, and it can be taken out."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from governed_models import plan_for, rule
from torch import nn
from torch.nn import functional

from detlab.cli.commands.registry.ablate import left_by
from detlab.client.operations.governance.evidence import LearntFrom
from detlab.errors import CheckpointError, DetlabError
from detlab.governance import GovernanceError, Plan
from detlab.governance.ablation import RECORD, ablate
from detlab.governance.isolation import isolated_modules, own_parameters
from detlab.governance.ledger import LedgerEntry
from detlab.governance.profiles import differences
from detlab.pytorch.checkpoint.files import read_state, write_state
from detlab.pytorch.governance import ClipNorm, Governed, ModelProbe, gates

pytestmark = pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'>:DeprecationWarning")
NAMES = ["trusted", "partner", "trusted", "partner", "web", "trusted"]
OTHERS = [place for place, name in enumerate(NAMES) if name != "partner"]
OWN = ["adapter.0.weight", "adapter.0.bias", "adapter.2.weight", "adapter.2.bias"]
ISOLATED = (
    rule("*", "adapter", 0.0),
    rule("partner", ".*", 0.0),
    {**rule("partner", "adapter", 1.0), "level": "isolated"},
)
Contents = Callable[[int, torch.Tensor], torch.Tensor]
"""What stands in the places of the partner's samples, by step and shape."""


class Adapted(nn.Module):
    """A body and a head, and an adapter beside the way from one to the other."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.body = nn.Linear(4, 6)
        self.norm = nn.LayerNorm(6)
        self.adapter = nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 6))
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.body(x)).tanh()
        return self.head(hidden + self.adapter(hidden))


class Around(Adapted):
    """Calls a layer of the adapter by itself, and not the adapter."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.body(x)).tanh()
        return self.head(hidden + self.adapter[2](self.adapter[0](hidden).tanh()))


class ByHand(Adapted):
    """Uses a weight of the adapter without its module."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.body(x)).tanh()
        return self.head(hidden + functional.linear(hidden, self.adapter[0].weight) @ self.adapter[2].weight.t())


class Recurrent(Adapted):
    def __init__(self) -> None:
        super().__init__()
        self.adapter = nn.LSTM(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.body(x)).tanh()
        return self.head(hidden + self.adapter(hidden[None])[0][0])


def real(step: int, like: torch.Tensor) -> torch.Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(1000 + step))


def blank(step: int, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like)


def filled(value: float) -> Contents:
    return lambda step, like: torch.full_like(like, value)


def noise(step: int, like: torch.Tensor) -> torch.Tensor:
    return 1e4 * torch.rand(like.shape, generator=torch.Generator().manual_seed(step))


def trained(
    contents: Contents,
    *,
    kind: type[nn.Module] = Adapted,
    rules: Any = ISOLATED,
    clipper: Any = None,
    optimizer: Any = torch.optim.AdamW,
    compiled: bool = False,
    rows: list[int] | None = None,
    dtype: torch.dtype = torch.float32,
    **more: Any,
) -> tuple[nn.Module, Any, Governed]:
    """Train 12 steps; all but the partner's samples are always the same."""
    model = kind().to(dtype)
    plan = plan_for(model, *rules, **more)
    run = torch.compile(model, backend="aot_eager") if compiled else model
    governed = Governed(plan, [model])
    steps = optimizer(model.parameters(), lr=0.05)
    for step in range(12):
        x = torch.randn(len(NAMES), 4, generator=torch.Generator().manual_seed(step))
        for place, name in enumerate(NAMES):
            if name == "partner":
                x[place] = contents(10 * step + place, x[place])
        kept = list(range(len(NAMES))) if rows is None else rows
        with governed.batch([NAMES[place] for place in kept]):
            y = torch.tensor([place % 3 for place in kept])
            governed.backward(functional.cross_entropy(run(x[kept].to(dtype)), y, reduction="none"))
        clipped = governed.apart(clipper)
        if clipped is not None:
            clipped(list(model.parameters()))
        governed.step(steps)
    return model, steps, governed


def states(model: nn.Module, optimizer: Any, *, own: bool = False) -> dict[str, torch.Tensor]:
    found = {}
    for (name, parameter), state in zip(model.named_parameters(), optimizer.state.values(), strict=True):
        if name.startswith("adapter") == own:
            found[name] = parameter.detach()
            found |= {f"{name} {key}": value for key, value in state.items()}
    return found


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", [Adapted, Around, Recurrent])
def test_nothing_but_its_own_depends_on_what_an_isolated_source_holds(kind):
    clip = ClipNorm(0.1)
    first = trained(real, kind=kind, clipper=clip)[:2]
    for contents in (blank, noise, filled(math.nan), filled(math.inf)):
        other = trained(contents, kind=kind, clipper=clip)[:2]
        assert same(states(*first), states(*other)), "bit by bit, with what the optimizer keeps"
        assert not same(states(*first, own=True), states(*other, own=True)), "it was trained on"


def test_a_compiled_model_is_isolated_too():
    first, other = (trained(one, compiled=True)[:2] for one in (real, noise))
    assert same(states(*first), states(*other))
    assert not same(states(*first, own=True), states(*other, own=True))


def test_what_is_not_isolated_does_depend_on_it():
    # The same samples and steps: these guard the tests above against being vacuous.
    direct = (rule("partner", "body", 0.0), rule("partner", "norm", 0.0))
    ungated = (*ISOLATED[:2], rule("partner", "adapter", 1.0))
    for rules, more in ((direct, {}), (ungated, {}), (ISOLATED[:2] + ungated[2:], {"clip": "global"})):
        clip = ClipNorm(0.1) if more else None
        first, other = (trained(one, rules=rules, clipper=clip, **more)[:2] for one in (real, noise))
        assert not same(states(*first), states(*other)), (rules, more)


def test_a_gate_that_stays_open_is_found_by_these_tests(monkeypatch):
    monkeypatch.setattr(gates, "_mapped", lambda tree, change: tree)
    first, other = (trained(one)[:2] for one in (real, noise))
    assert not same(states(*first), states(*other))


def test_without_its_samples_the_others_are_trained_the_same_within_rounding():
    first, _, _ = trained(noise, dtype=torch.float64, normalize="per_layer", optimizer=torch.optim.SGD)
    without, _, _ = trained(noise, dtype=torch.float64, normalize="per_layer", optimizer=torch.optim.SGD, rows=OTHERS)
    for name, one in first.named_parameters():
        if not name.startswith("adapter"):
            assert (one - dict(without.named_parameters())[name]).abs().max() < 1e-12, name


def test_its_modules_are_closed_in_evaluation_unless_they_serve_it():
    model, _, governed = trained(real)
    model.eval()
    x = torch.randn(5, 4)
    without = copy.deepcopy(Adapted())
    without.load_state_dict(
        {**model.state_dict(), **{name: torch.zeros_like(model.state_dict()[name]) for name in OWN}}
    )
    with torch.no_grad():
        assert torch.equal(model(x), without(x))
        with governed.serving("partner"):
            served = model(x)
        assert torch.equal(model(x), without(x))
        plain = Adapted()
        plain.load_state_dict(model.state_dict())
        assert torch.equal(served, plain(x)), "outside of a policy the adapter is part of the model"
        assert not torch.equal(served, without(x))
        with governed.serving("trusted"):
            assert torch.equal(model(x), without(x))


def refused(code: str) -> Any:
    return pytest.raises(GovernanceError, match=code)


def test_sources_must_be_known_before_the_forward_pass():
    governed = Governed(plan_for(model := Adapted(), *ISOLATED), [model])
    with refused("needs the sources of a batch before its forward pass"), governed.batch(None):
        model(torch.zeros(6, 4))


def test_a_weight_that_is_used_around_its_module_is_found():
    with refused("LEAK: adapter.0.weight"):
        trained(real, kind=ByHand)


@pytest.mark.parametrize(
    ("rules", "more", "said"),
    [
        ((rule("partner", ".*", 0.0), ISOLATED[2]), {}, "LEVEL: 'partner' is isolated in .* which 'trusted' may train"),
        ((ISOLATED[0], ISOLATED[2]), {}, "LEVEL: 'partner' is isolated in a part .* not in body.weight, body.bias"),
        (ISOLATED, {"enforce": "audit"}, "LEVEL: `isolated` is a promise"),
        (({**rule("partner", "head.bias", 1.0), "level": "isolated"},), {}, "LEVEL: 'partner' is isolated in a part"),
        (
            (
                rule("*", "head.bias", 0.0),
                rule("partner", ".*", 0.0),
                {**rule("partner", "head.bias", 1.0), "level": "isolated"},
            ),
            {},
            "LEVEL: 'partner' is isolated in head.bias, which is in no module of its own",
        ),
        ((*ISOLATED, {**rule("web", "head", 1.0), "level": "isolated"}), {}, "LEVEL: 'web' is isolated in a part"),
        (ISOLATED, {"clip": "global"}, "POLICY: governance.clip"),
        ((), {"level": "isolated"}, "LEVEL: 'trusted' is isolated in .*, which 'web' may train"),
    ],
)
def test_a_policy_that_cannot_isolate_is_refused(rules, more, said):
    with refused(said):
        plan_for(Adapted(), *rules, **more)


def test_samples_without_a_source_may_not_reach_it():
    with refused("which samples without a declared source may train"):
        plan_for(Adapted(), *(rule(one, "adapter", 0.0) for one in ("trusted", "web")), rule("partner", ".*", 0.0),
                 ISOLATED[2], default="allow")  # fmt: skip


def test_steps_that_couple_sources_are_refused():
    with refused("CLIP: clip_grads may couple 'partner'"):
        trained(real, clipper=lambda parameters: nn.utils.clip_grad_norm_(parameters, 0.1))
    with refused("LEVEL: 'partner' cannot be isolated: LBFGS"):
        trained(real, optimizer=torch.optim.LBFGS)
    with refused("LEVEL: 'partner' cannot be isolated: a gradient scaler"):
        governed = Governed(plan_for(model := Adapted(), *ISOLATED), [model])
        governed.before_step(torch.optim.SGD(model.parameters()), object())


def test_the_modules_of_a_source_are_the_outermost_that_hold_nothing_else():
    for rules, found in ((ISOLATED, {"adapter": "partner"}), ((), {})):
        plan = plan_for(Adapted(), *rules)
        assert isolated_modules(plan.matrix, plan.names) == found


# --- taken out of a checkpoint


def saved(folder: Path, model: nn.Module, optimizer: Any, governed: Governed, **more: Any) -> Path:
    folder.mkdir()
    tree = {
        "models_state_dict": [model.state_dict()],
        "optimizers_state_dict": [optimizer.state_dict()],
        "optimizer_parameters": [governed.names_in(optimizer)],
        "ranks": [{"rng": None, "gradients": None}],
        **more,
    }
    write_state(folder, tree)
    return folder


def taken_out(folder: Path, plan: Plan) -> Any:
    return ablate(folder, "partner", own_parameters("partner", [plan.matrix]), [one.name for one in plan.parameters])


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.NAdam])
def test_a_checkpoint_without_the_source_is_that_of_a_training_that_never_saw_it(tmp_path, optimizer):
    folders = []
    for number, contents in enumerate((real, blank, filled(math.nan))):
        model, steps, governed = trained(contents, optimizer=optimizer, clipper=ClipNorm(0.1))
        folders.append(saved(tmp_path / str(number), model, steps, governed))
        done = taken_out(folders[-1], governed.plan)
        assert (done.zeroed, done.forgotten, done.kept) == (sorted(OWN), sorted(OWN), [])
    for name in ("model_0.safetensors", "trainer.safetensors", "trainer.json", RECORD):
        assert len({(folder / name).read_bytes() for folder in folders}) == 1, name
    tree = read_state(folders[0])
    again = Adapted()
    again.load_state_dict(tree["models_state_dict"][0])
    assert all(not one.any() for name, one in again.named_parameters() if name in OWN)
    fresh = optimizer(again.parameters())
    fresh.load_state_dict(tree["optimizers_state_dict"][0])
    again(torch.randn(3, 4)).sum().backward()
    fresh.step()
    assert json.loads((folders[0] / RECORD).read_text())["source"] == "partner"


def test_further_names_of_its_weights_are_taken_out_and_what_is_not_governed_is_named(tmp_path):
    model, steps, governed = trained(real)
    model.register_buffer("average", torch.ones(2))
    model.twin = nn.Linear(6, 3, bias=False)
    model.twin.weight = model.adapter[0].weight
    folder = saved(tmp_path / "one", model, steps, governed)
    done = taken_out(folder, governed.plan)
    assert done.zeroed == sorted([*OWN, "twin.weight"])
    assert done.kept == ["average"]


def test_what_cannot_be_taken_out_is_refused_and_nothing_is_changed(tmp_path):
    model, steps, governed = trained(real)
    plan = governed.plan
    direct = plan_for(Adapted()).matrix
    with refused("'partner' has trained body.weight, body.bias, norm.weight and 7 more at the level direct"):
        own_parameters("partner", [plan.matrix, direct])
    with refused("'trusted' has trained adapter.0.weight"):
        own_parameters("partner", [plan.matrix, plan_for(Adapted(), rule("partner", ".*", 0.0)).matrix])
    unfinished = saved(tmp_path / "one", model, steps, governed, ranks=[{"gradients": [torch.ones(1)]}])
    before = (unfinished / "model_0.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match="a step that was not finished"):
        taken_out(unfinished, plan)
    nameless = saved(tmp_path / "two", model, steps, governed, optimizer_parameters=[])
    with pytest.raises(CheckpointError, match="does not say which parameters its optimizers have"):
        taken_out(nameless, plan)
    with pytest.raises(CheckpointError, match=r"no parameter adapter\.9"):
        ablate(saved(tmp_path / "three", model, steps, governed), "partner", ["adapter.9"], [])
    for content in (b"", b"\xff" * 8, b"\x02" + bytes(7) + b"{}"):
        broken = saved(tmp_path / f"four{len(content)}", model, steps, governed)
        (broken / "model_0.safetensors").write_bytes(content)
        with pytest.raises(CheckpointError):
            taken_out(broken, plan)
    assert (unfinished / "model_0.safetensors").read_bytes() == before


def test_what_was_direct_is_not_said_to_have_been_trained_under_another_matrix() -> None:
    direct = plan_for(Adapted(), rule("partner", ".*", 1.0)).matrix
    with pytest.raises(GovernanceError) as refused:
        own_parameters("partner", [direct])
    assert "at the level direct" in str(refused.value)
    assert "another matrix" not in str(refused.value)
    assert "kept apart from the first step on" in str(refused.value.hint)


def test_the_ledger_says_what_a_source_alone_has_trained():
    matrix = plan_for(Adapted(), *ISOLATED).matrix
    body = {"s_hash": matrix.s_hash, "counts": {"partner": 3, "trusted": 4, "web": 0}}
    found = LearntFrom([LedgerEntry.after(None, 1, "segment", "u", body, 0.0)], {matrix.s_hash: matrix})
    seen: Any = SimpleNamespace(problems=[], checkpoint="u")
    own, trained = left_by("partner", seen, found)
    assert (own, len(trained)) == (OWN, 10)
    with pytest.raises(DetlabError, match="web has given no sample"):
        left_by("web", seen, found)
    with refused("LEVEL: 'trusted' has trained body.weight, body.bias, norm.weight and 3 more at the level direct"):
        left_by("trusted", seen, found)
    with pytest.raises(DetlabError, match="trial 7, whose ledger you cannot read"):
        left_by("partner", seen, LearntFrom(found.segments, found.matrices, unknown=7))
    problem = SimpleNamespace(code="SIG", message="forged")
    with pytest.raises(DetlabError, match="not in order"):
        left_by("partner", SimpleNamespace(problems=[problem], checkpoint="u"), found)


def test_a_profile_is_of_the_model_without_the_isolated_source():
    """So the copy without the source agrees with what was signed, and the whole model does not."""
    model = Adapted()
    Governed(plan_for(model, *ISOLATED), [model])
    probe = ModelProbe.taken((torch.randn(6, 4, generator=torch.Generator().manual_seed(1)),), {}, 6)
    assert probe is not None
    recorded = probe.profile(model)
    assert recorded == probe.profile(model, Adapted().state_dict())  # as before a checkpoint is loaded
    whole, without = Adapted(), Adapted()
    for one in without.adapter.parameters():
        one.data.zero_()
    assert differences(recorded, probe.profile(without), 1e-6) == []
    assert differences(recorded, probe.profile(whole), 1e-6) != []
