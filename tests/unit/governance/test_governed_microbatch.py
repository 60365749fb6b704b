"""The engine `microbatch`: each source of a batch by itself, with layers and losses that mix samples of one source."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from governed_models import (
    CLOSED,
    LAYERS,
    SCALES,
    SOURCES,
    Mixed,
    batch_of,
    gradients_of,
    losses_of,
    plan_for,
    rule,
    source_by_source,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from detlab.governance import GovernanceError, Plan, Policy, compile_policy
from detlab.governance.matrix import rows_that_change
from detlab.governance.sources import BatchPart, SamplesBySource, combine, parts_of
from detlab.pytorch.governance import ClipNorm, Governed, microbatch, parameters_of_models
from detlab.pytorch.source_step import CollateEach, mean_of_parts

NAMES = ["web", "trusted", "partner", "web", "trusted"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Normed(Mixed):
    """With batch norm in place of group norm."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__(tied=tied)
        self.group = nn.BatchNorm1d(8).double()


class Packed(nn.Module):
    """Layers that no other engine takes: it packs its samples into one row, and normalises over them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.body = nn.LSTM(6, 8)
        self.factor = nn.Parameter(torch.ones(8))
        self.head = nn.Linear(8, 11)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        row = self.embed(x.flatten())
        hidden, _ = self.body(row)
        hidden = (hidden - hidden.mean(0)) * self.factor
        return self.head(hidden).view(*x.shape, 11)


def mixing(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return losses that depend on all samples they are computed with."""
    losses = losses_of(model, x, y)
    return losses - losses.logsumexp(0) / len(losses)


def seeded(kind: type[nn.Module] = Mixed, seed: int = 0, **how: Any) -> Any:
    torch.manual_seed(seed)
    return kind(**how)


def parted(
    model: Any,
    plan: Plan,
    batch: tuple[torch.Tensor, torch.Tensor],
    names: list[str],
    losses: Callable[..., torch.Tensor] = losses_of,
) -> Governed:
    """Run one batch."""
    governed = Governed(plan, [model])
    one_batch(governed, model, batch, names, losses)
    return governed


def one_batch(
    governed: Governed,
    model: Any,
    batch: tuple[torch.Tensor, torch.Tensor],
    names: list[str],
    losses: Callable[..., torch.Tensor] = losses_of,
) -> None:
    x, y = batch
    for rows in governed.parts(names):
        governed.backward(losses(model, x[rows], y[rows]))


def furthest(found: Any, expected: Any) -> float:
    return max((found[name] - expected[name]).abs().max().item() for name in expected)


def alone(model: Any, *rules: Any, **more: Any) -> Plan:
    return plan_for(model, *rules, engine="microbatch", **more)


# --- exact


@given(
    st.lists(
        st.tuples(st.sampled_from(SOURCES[1:]), st.sampled_from(LAYERS), st.sampled_from(SCALES)),
        min_size=1,
        max_size=5,
    ),
    st.lists(st.sampled_from(SOURCES), min_size=1, max_size=7),
    st.sampled_from([Mixed, Normed]),
    st.sampled_from([losses_of, mixing]),
    st.booleans(),
    st.integers(0, 99),
)
@settings(deadline=None, max_examples=25)
def test_t1_gradients_are_those_of_a_backward_pass_for_each_source(rules, names, kind, losses, tied, seed):
    model = seeded(kind, seed, tied=tied)
    plan = alone(model, *(rule(*one) for one in rules if not tied or one[1] not in ("embed", "head")))
    batch = batch_of(len(names), seed)
    expected = source_by_source(model, plan, batch, names, losses)
    parted(model, plan, batch, names, losses)
    assert furthest(gradients_of(model), expected) <= 1e-10


def test_t1_layers_that_no_other_engine_takes_are_exact():
    model = seeded(Packed)
    rules = (rule("web", "body|embed", 0.0), rule("partner", "factor", 0.25))
    with pytest.raises(GovernanceError, match="ENGINE") as refused:
        Governed(plan_for(model, *rules, engine="fused"), [model])
    assert "engine: microbatch" in refused.value.hint
    plan, batch = alone(model, *rules), batch_of(5)
    expected = source_by_source(model, plan, batch, NAMES)
    parted(model, plan, batch, NAMES)
    assert furthest(gradients_of(model), expected) <= 1e-10


def test_a_loss_of_all_samples_of_a_source_is_given_by_expanding_it():
    model, (x, y) = seeded(Normed), batch_of(5)
    plan = alone(model, *CLOSED)
    expected = source_by_source(model, plan, (x, y), NAMES)
    parted(model, plan, (x, y), NAMES, lambda *batch: losses_of(*batch).mean().expand(len(batch[1])))
    assert furthest(gradients_of(model), expected) <= 1e-15


@pytest.mark.parametrize("engine", ["auto", "microbatch"])
def test_a_loop_over_parts_is_one_for_all_engines(engine):
    model = seeded()
    plan, batch, seen = plan_for(model, *CLOSED, engine=engine), batch_of(5), []
    expected = source_by_source(model, plan, batch, NAMES)
    governed = Governed(plan, [model])
    for rows in governed.parts(NAMES):
        seen.append(rows)
        governed.backward(losses_of(model, batch[0][rows], batch[1][rows]))
    assert furthest(gradients_of(model), expected) <= 1e-15
    assert seen == ([[0, 1, 2, 3, 4]] if engine == "auto" else [[1, 4], [0, 3], [2]])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_t6_where_batches_are_of_one_source_and_nothing_is_closed_no_bit_changes(kind):
    stock = seeded(Normed).float()
    model = copy.deepcopy(stock)
    governed = Governed(alone(model), [model])
    plain, ours = kind(stock.parameters(), lr=0.1), kind(model.parameters(), lr=0.1)
    for step in range(30):
        batch = batch_of(5, step)
        losses_of(stock, *batch).mean().backward()
        plain.step()
        plain.zero_grad()
        with governed.batch([SOURCES[step % 3]] * 5):
            governed.backward(losses_of(model, *batch))
        governed.step(ours)
    assert all(torch.equal(one, model.state_dict()[name]) for name, one in stock.state_dict().items())


@pytest.mark.parametrize("normalize", ["global", "per_layer"])
def test_batches_of_one_step_weigh_by_their_samples(normalize):
    model = seeded()
    plan = alone(model, rule("web", "head", 0.5), rule("web", "mid", 0.0), normalize=normalize)
    names, (x, y) = ["web", "trusted", "web", "trusted", "web", "web"], batch_of(6)
    expected = source_by_source(model, plan, (x, y), names)
    governed = Governed(plan, [model])
    for part in (slice(0, 4), slice(4, 6)):
        one_batch(governed, model, (x[part], y[part]), names[part])
    governed.reduce(model.parameters(), batches=2)
    divisors = {"head": 4.0, "mid": 2.0} if normalize == "per_layer" else {}
    wanted = {name: one * 6 / divisors.get(name.split(".")[0], 6.0) for name, one in expected.items()}
    assert furthest(gradients_of(model), wanted) <= 1e-14


def test_samples_without_a_source_are_a_part_of_their_own():
    model = seeded()
    plan = alone(model, rule("*", "embed", 0.0), rule("trusted", "embed", 1.0), default="allow")
    governed = Governed(plan, [model])
    one_batch(governed, model, batch_of(3), ["trusted", None, "unheard"])
    stock = seeded()
    x, y = batch_of(3)
    (losses_of(stock, x[:1], y[:1]).sum() / 3).backward()
    assert furthest({"": model.embed.weight.grad}, {"": stock.embed.weight.grad}) <= 1e-15
    assert governed.metrics()["gov/coverage"] == pytest.approx(1 / 3)


def test_a_lent_batch_trains_nothing_and_changes_no_buffer():
    model = seeded(Normed)
    governed = Governed(alone(model, *CLOSED), [model])
    before = copy.deepcopy(model.state_dict())
    governed.begin([], lent=True)
    (part,) = governed.batch_parts
    with governed.part(part):
        governed.backward(losses_of(model, *batch_of(3)) * torch.nan)
    governed.end()
    assert not any(bool(one.any()) for one in gradients_of(model).values())
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


# --- closed sources


class Image(nn.Module):
    """Convolutions with batch norm, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.body = nn.Linear(36, 8)
        self.own = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.own(self.body(self.norm(self.conv(x)).relu().flatten(1))))


def image_losses(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(model(x), y, reduction="none")


def content(kind: str, like: torch.Tensor) -> torch.Tensor:
    if kind == "random":
        return torch.randn(like.shape, generator=torch.Generator().manual_seed(9))
    return torch.full_like(like, {"nan": torch.nan, "inf": torch.inf, "large": 1e6}[kind])


IMAGE_NAMES = ["web", "trusted", "web", "trusted", "trusted"]


def leaves(kind: str | None) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return gradients and buffers after a batch whose samples of `web` hold something else."""
    torch.manual_seed(3)
    model = Image()
    x, y = torch.randn(5, 1, 3, 3), torch.tensor([0, 1, 2, 0, 1])
    if kind is not None:
        x[[0, 2]] = content(kind, x[[0, 2]])
    parted(model, alone(model, rule("web", "conv|norm|body|own", 0.0)), (x, y), IMAGE_NAMES, image_losses)
    return gradients_of(model), dict(model.named_buffers())


def traces(kind: str) -> list[str]:
    """Return what of closed layers depends on what a closed source holds."""
    (first, before), (second, after) = leaves(None), leaves(kind)
    # what is open must have changed: else nothing was put to the test
    assert not torch.equal(first["head.weight"], second["head.weight"])
    differ = [name for name in first if not name.startswith("head") and not torch.equal(first[name], second[name])]
    return differ + [name for name in before if not torch.equal(before[name], after[name])]


@pytest.mark.parametrize("kind", ["random", "nan", "inf"])
def test_t3_what_a_closed_source_holds_leaves_no_bit_in_closed_layers_and_their_running_statistics(kind):
    assert traces(kind) == []
    gradients, buffers = leaves(kind)
    assert all(bool(one.any()) for one in gradients.values())
    assert buffers["norm.num_batches_tracked"] == buffers["own.num_batches_tracked"] == 1
    assert bool(buffers["norm.running_mean"].any())


def test_running_statistics_of_open_layers_have_each_part_in_the_order_of_the_sources():
    torch.manual_seed(3)
    model = Image()
    stock = copy.deepcopy(model)
    x, y = torch.randn(5, 1, 3, 3), torch.tensor([0, 1, 2, 0, 1])
    parted(model, alone(model, rule("web", "head", 0.5)), (x, y), IMAGE_NAMES, image_losses)
    for rows in ([1, 3, 4], [0, 2]):
        stock(x[rows])
    assert all(torch.equal(one, dict(stock.named_buffers())[name]) for name, one in model.named_buffers())


ISOLATED = (
    rule("*", "adapter", 0.0),
    rule("partner", ".*", 0.0),
    {**rule("partner", "adapter", 1.0), "level": "isolated"},
)


class Beside(Image):
    """With an adapter of the partner's, which has batch norm, too."""

    def __init__(self) -> None:
        super().__init__()
        self.adapter = nn.Sequential(nn.Linear(9, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + self.adapter(x.flatten(1))


@pytest.mark.parametrize("kind", ["random", "large", "nan"])
def test_t5_at_isolated_all_else_and_its_statistics_are_bit_equal_whatever_a_source_holds(kind):
    names = ["trusted", "partner", "trusted", "partner", "web", "web"]
    found = []
    for other in (None, kind):
        torch.manual_seed(5)
        model = Beside()
        governed = Governed(alone(model, *ISOLATED), [model])
        steps = torch.optim.AdamW(model.parameters(), lr=0.05)
        for step in range(6):
            x = torch.randn(6, 1, 3, 3, generator=torch.Generator().manual_seed(step))
            if other is not None:
                x[[1, 3]] = content(other, x[[1, 3]])
            one_batch(governed, model, (x, torch.arange(6) % 3), names, image_losses)
            governed.before_step(steps)
            governed.reduce(model.parameters())
            clip = governed.apart(ClipNorm(0.5))
            assert clip is not None
            clip(list(model.parameters()))
            steps.step()
            steps.zero_grad()
            governed.after_step([steps])
        found.append(model.state_dict())
    rest = [name for name in found[0] if not name.startswith("adapter")]
    assert all(torch.equal(found[0][name], found[1][name]) for name in rest)
    assert not torch.equal(found[0]["adapter.0.weight"], found[1]["adapter.0.weight"])


# --- which rows may change a buffer


def changers(
    *rules: Any, sources: Any = SOURCES, names: Any = ("body.norm.mean",), beside: bool = True, **more: Any
) -> set[Any]:
    """Return the sources that may change a buffer of `body.norm`, which has a weight or not."""
    model = nn.ModuleDict({"body": nn.ModuleDict({"norm": nn.LayerNorm(2, bias=False)}), "head": nn.Linear(2, 2)})
    listed = [{"name": one} if isinstance(one, str) else one for one in sources]
    plan = compile_policy(Policy.of({"sources": listed, "rules": list(rules), **more}), parameters_of_models([model]))
    columns = [at for at, one in enumerate(plan.parameters) if beside and one.name.startswith("body")]
    rows = [*plan.sources, None]
    return {rows[row] for row in rows_that_change(plan, list(names), columns)}


ALL = rule("*", ".*", 1.0)


@pytest.mark.parametrize(
    ("rules", "how", "expected"),
    [
        ((ALL,), {}, set(SOURCES)),
        ((ALL, rule("web", "body", 0.0)), {}, {"trusted", "partner"}),
        ((ALL, rule("web", "body", 0.25)), {}, set(SOURCES)),
        # closed by its own name, or by the parameters beside it
        ((ALL, rule("web", r"body\.norm\.mean", 0.0)), {}, {"trusted", "partner"}),
        ((ALL, rule("web", r"body\.norm\.weight", 0.0)), {}, {"trusted", "partner"}),
        ((ALL, rule("web", r"body\.norm\.weight", 0.0)), {"beside": False}, set(SOURCES)),
        # of two names the one that is closed counts
        ((ALL, rule("web", "tied", 0.0)), {"names": ("body.norm.mean", "tied.mean")}, {"trusted", "partner"}),
        # no rule says anything of it
        ((rule("*", r".*\.(weight|bias)", 1.0),), {}, set(SOURCES)),
        ((rule("*", r".*\.(weight|bias)", 1.0),), {"beside": False}, set()),
        # what a source was made from counts, and samples without a source
        (
            (ALL, rule("web", "body", 0.0)),
            {"sources": ("trusted", "web", {"name": "mixed", "parents": ["web", "trusted"]})},
            {"trusted"},
        ),
        ((ALL,), {"default": "allow"}, {*SOURCES, None}),
        ((ALL, rule("*", "body", 0.0), rule("web", "body", 1.0)), {"default": "allow"}, {"web"}),
    ],
)
def test_buffers_count_as_parameters(rules, how, expected):
    assert changers(*rules, **how) == expected


class Counting(nn.Module):
    """Keeps a mean of its own, in a new tensor each time."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = 0.9 * self.seen + x.detach().mean(0)
        return self.body(x)


def test_a_buffer_that_is_replaced_is_put_back_too():
    model = Counting()
    governed = Governed(alone(model, rule("web", "seen", 0.0)), [model])
    for names, expected in ((["web"], 0.0), (["trusted"], 1.0), (["web", "trusted"], 1.9)):
        for rows in governed.parts(names):
            governed.backward(model(torch.ones(1, 3)[[0] * len(rows)]).sum(1))
        assert model.seen.tolist() == pytest.approx([expected] * 3)


# --- metrics, guard, modes


def test_what_each_source_gave_is_the_norm_of_its_scaled_gradient_of_all_layers():
    model = seeded(Packed)
    plan = alone(model, rule("web", "embed", 0.0), rule("partner", "head", 0.5))
    x, y = batch_of(5)
    layers, expected = ("factor", "embed", "body", "head"), []
    for own in plan.sources:
        mine = [at for at, name in enumerate(NAMES) if name == own]
        gradients = source_by_source(model, plan, (x[mine], y[mine]), [own] * len(mine))
        norms = [sum(one.norm().item() for n, one in gradients.items() if n.split(".")[0] == at) for at in layers]
        expected.append([one / sum(norms) for one in norms])
    governed = parted(model, plan, (x, y), NAMES)
    report = governed.metrics()
    assert sorted(report["gov/depth"]["layers"]) == sorted(layers)
    places = [report["gov/depth"]["layers"].index(one) for one in layers]
    for found, wanted in zip(report["gov/depth"]["mass"], expected, strict=True):
        assert [found[at] for at in places] == pytest.approx(wanted, abs=1e-6)
    assert (report["gov/leak_mass"], report["gov/violations"]) == (0.0, 0)
    assert report["gov/share"] == {"trusted": 0.4, "web": 0.4, "partner": 0.2}


def test_a_gradient_scaler_scales_all_parts():
    model = seeded()
    plan, (x, y) = alone(model, *CLOSED), batch_of(5)
    expected = source_by_source(model, plan, (x, y), NAMES)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    governed = Governed(plan, [model])

    def by(losses: Any, seeds: Any, retain_graph: bool) -> None:
        scaler.scale(losses).backward(seeds, retain_graph=retain_graph)

    for rows in governed.parts(NAMES):
        governed.backward(losses_of(model, x[rows], y[rows]), by=by)
    scaler.unscale_(torch.optim.SGD(model.parameters(), lr=0.1))
    assert furthest(gradients_of(model), expected) <= 1e-10


class Small(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Embedding(11, 6), nn.LayerNorm(6), nn.Flatten(), nn.BatchNorm1d(30), nn.Linear(30, 55))
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).view(*x.shape, 11)


@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'>:DeprecationWarning")
def test_t7_a_compiled_model_is_scaled_too_and_its_statistics_are_kept():
    torch._dynamo.reset()
    model = seeded(Small)
    plan = alone(model, rule("web", "0|3", 0.0), rule("partner", "4", 0.5))
    governed = Governed(plan, [model])
    compiled = torch.compile(model, backend="aot_eager", dynamic=True)
    stock = seeded(Small)
    for names in (["web"] * 2 + ["trusted"] * 3, ["trusted", "partner", "partner", "trusted", "partner"]):
        batch = batch_of(len(names))
        expected = source_by_source(stock, plan, batch, names)
        one_batch(governed, compiled, batch, names)
        assert furthest(gradients_of(model), expected) <= 1e-12
        model.zero_grad()
        for source in [one for one in SOURCES if one in names and one != "web"]:
            stock(batch[0][[at for at, name in enumerate(names) if name == source]])
        assert furthest(dict(model.named_buffers()), dict(stock.named_buffers())) <= 1e-12


class Checkpointed(Mixed):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(self.first, self.embed(x), use_reentrant=False)
        return self.head(self.norm(self.mid(hidden)).tanh())

    def first(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.group(self.conv(hidden.transpose(1, 2))).relu().transpose(1, 2)


def test_t7_activation_checkpointing_changes_no_bit():
    found = []
    for kind in (Mixed, Checkpointed):
        model = seeded(kind)
        parted(model, alone(model, *CLOSED), batch_of(5), NAMES)
        found.append(gradients_of(model))
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_a_copy_of_a_model_shares_no_batches_with_it():
    model = seeded(Normed)
    governed = Governed(alone(model, *CLOSED), [model])
    average = copy.deepcopy(model).eval()
    one_batch(governed, model, batch_of(5), NAMES)
    average(batch_of(2)[0])
    assert all(one.grad is None for one in average.parameters())
    assert list(average.state_dict()) == list(Normed().state_dict())
    assert average.group.num_batches_tracked == 0


# --- refused


def refused(code: str) -> Any:
    return pytest.raises(GovernanceError, match=code)


def test_batch_norm_is_refused_by_all_other_engines_which_name_this_one():
    model = seeded(Normed)
    for engine in ("auto", "fused", "dual"):
        with refused("COUPLING: BatchNorm1d") as error:
            plan_for(model, engine=engine)
        assert "engine: microbatch" in error.value.hint


def test_batch_norm_over_all_ranks_is_refused_here_too():
    with refused("COUPLING: SyncBatchNorm mixes the samples of all ranks"):
        alone(nn.Sequential(nn.Linear(2, 2), nn.SyncBatchNorm(2)))


def test_sparse_gradients_are_refused():
    model = nn.Embedding(3, 2, sparse=True)
    with refused("ENGINE: an embedding has sparse gradients"):
        Governed(alone(model), [model])


def test_the_level_dp_has_no_engine():
    numbers = {"max_grad_norm": 1.0, "target_epsilon": 8.0, "delta": 1e-5}
    with refused("engine"):
        alone(seeded(), level="dp", dp=numbers)


def test_a_batch_of_several_sources_is_not_one_pass():
    model = seeded(Normed)
    governed = Governed(alone(model, *CLOSED), [model])
    with refused("ENGINE: .*governed.parts"), governed.batch(NAMES):
        pytest.fail("it has begun")


def test_sources_must_be_known_before_the_forward_pass():
    model = seeded()
    governed = Governed(alone(model, *CLOSED), [model])
    for begin in (lambda: governed.begin(None), lambda: governed.begin([]), lambda: next(governed.parts(None))):
        with refused("SAMPLES"):
            begin()


def between(change: Callable[[Any, Any, Any], None]) -> None:
    """Do something after the backward pass of the first part."""
    model = seeded()
    governed = Governed(alone(model, *CLOSED), [model])
    optimizer, (x, y) = torch.optim.SGD(model.parameters(), lr=0.1), batch_of(5)
    for rows in governed.parts(NAMES):
        governed.backward(losses_of(model, x[rows], y[rows]))
        change(governed, optimizer, model)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda governed, optimizer, model: optimizer.zero_grad(), "gradients of another part"),
        (lambda governed, optimizer, model: optimizer.zero_grad(set_to_none=False), "gradients of another part"),
        (lambda governed, optimizer, model: nn.utils.clip_grad_norm_(model.parameters(), 1e-3), "gradients of another"),
        (lambda governed, optimizer, model: governed.step(optimizer), "after a step of the same batch"),
    ],
    ids=["dropped", "zeroed", "clipped", "stepped"],
)
def test_what_happens_to_gradients_between_two_parts_is_refused(change, said):
    with refused(f"ENGINE: .*{said}"):
        between(change)


def test_a_backward_pass_outside_of_a_part_is_refused():
    model = seeded()
    governed = Governed(alone(model, *CLOSED), [model])
    governed.begin(NAMES)
    with refused("ENGINE"):
        governed.backward(losses_of(model, *batch_of(5)))


def test_losses_of_other_samples_than_those_of_the_part_are_refused():
    model = seeded()
    governed = Governed(alone(model, *CLOSED), [model])
    with refused("SAMPLES: 5 losses were given for 2"):
        for _ in governed.parts(NAMES):
            governed.backward(losses_of(model, *batch_of(5)))


def test_a_backward_pass_of_the_users_own_is_found():
    model = seeded()
    governed = Governed(alone(model, *CLOSED), [model])
    x, y = batch_of(5)
    for rows in governed.parts(NAMES):
        losses_of(model, x[rows], y[rows]).mean().backward()
    with refused("BYPASS"):
        governed.step(torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_layer_with_closed_statistics_may_not_run_in_training_mode_outside_of_a_batch():
    model = seeded(Normed)
    Governed(alone(model, *CLOSED), [model])
    with torch.no_grad():
        model.eval()(batch_of(2)[0])
        with refused("SAMPLES: BatchNorm1d ran in training mode outside of a batch"):
            model.train()(batch_of(2)[0])
    free = seeded(Normed)
    Governed(alone(free, rule("web", "head", 0.0)), [free])
    free(batch_of(2)[0])  # all may change it


# --- T8: what these tests find


def differs() -> bool:
    """Return whether scaled gradients differ from the definition."""
    model = seeded(Normed)
    plan = alone(model, rule("web", "embed|conv|group", 0.0), rule("partner", "mid", 0.5), enforce="audit")
    expected = source_by_source(model, plan, batch_of(5), NAMES)
    parted(model, plan, batch_of(5), NAMES)
    return furthest(gradients_of(model), expected) > 1e-10


def test_t8_the_comparison_finds_no_fault_in_the_engine_as_it_is():
    assert not differs()


def turned(rows: Any) -> list[BatchPart]:
    parts = parts_of(rows)
    return [BatchPart(one.row, other.places) for one, other in zip(parts, parts[1:] + parts[:1], strict=True)]


@pytest.mark.parametrize(
    ("name", "mutant"),
    [
        ("given_by", lambda gradient, factor: gradient),
        ("given_by", lambda gradient, factor: gradient * (factor == 0)),
        ("given_by", lambda gradient, factor: gradient * (factor != 0)),
        ("parts_of", turned),
    ],
    ids=["no factor", "mask flipped", "factors of one", "samples of another source"],
)
def test_t8_an_engine_with_a_fault_is_found_by_comparison(monkeypatch, name, mutant):
    monkeypatch.setattr(microbatch, name, mutant)
    assert differs()


def test_t8_a_factor_that_multiplies_lets_what_is_not_a_number_through(monkeypatch):
    monkeypatch.setattr(microbatch, "given_by", lambda gradient, factor: gradient * factor)
    monkeypatch.setattr(microbatch.GradientGuard, "end", lambda guard: [])  # the guard would refuse first
    assert "conv.weight" in traces("nan")


def test_t8_statistics_that_are_not_put_back_are_found(monkeypatch):
    monkeypatch.setattr(microbatch.ClosedBuffers, "restore", lambda self: None)
    assert "norm.running_mean" in traces("random")


@pytest.mark.parametrize("mutant", [lambda gradient, factor: gradient, lambda gradient, factor: gradient * factor])
def test_t8_the_guard_finds_what_is_not_scaled(monkeypatch, mutant):
    monkeypatch.setattr(microbatch, "given_by", mutant)
    with refused("LEAK"):
        leaves("nan")


def test_t8_gradients_that_nobody_takes_note_of_may_be_dropped(monkeypatch):
    monkeypatch.setattr(microbatch.SourceParts, "after_backward", lambda self: None)
    between(lambda governed, optimizer, model: optimizer.zero_grad())


# --- pre-flight


def test_each_parameter_is_tried_before_the_first_step_and_nothing_changes():
    model = seeded(Normed)
    governed = Governed(alone(model, rule("web", "embed|group", 0.0), rule("partner", r"head\.bias", 0.3)), [model])
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    found = governed.preflight()
    assert (found.tried, found.untried, found.refusals) == (4, 0, [])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert all(one.grad is None for one in model.parameters())


@pytest.mark.parametrize(
    "mutant", [lambda gradient, factor: gradient, lambda gradient, factor: gradient * factor], ids=["leaks", "nan"]
)
def test_t8_an_engine_that_does_not_keep_to_the_policy_is_refused_before_the_first_step(monkeypatch, mutant):
    model = seeded()
    governed = Governed(alone(model, rule("web", "mid", 0.0)), [model])
    monkeypatch.setattr(microbatch, "given_by", mutant)
    assert {one.code for one in governed.preflight().refusals} == {"ENV"}


def test_a_parameter_that_is_made_anew_is_refused():
    model = seeded()
    governed = Governed(alone(model, rule("web", "mid", 0.0)), [model])
    model.mid.float()
    assert {one.code for one in governed.preflight().refusals} == {"ENV"}


# --- batches of a trial


def test_samples_of_a_batch_are_collated_apart_in_the_order_of_the_sources():
    data = SamplesBySource(combine({"b": [10, 11, 12], "x": [30], "a": [20, 21]}), {"a": 0, "b": 1})
    assert data.__getitems__([1, 5, 3, 0, 4]) == [[21, 20], [11, 10], [30]]
    assert (len(data), data[5], data.source_of(3)) == (6, 21, "x")
    assert CollateEach(sum)(data.__getitems__([0, 4, 5])) == [41, 10]


def test_metrics_of_a_batch_are_the_mean_over_samples():
    assert mean_of_parts([(3, "as it is")]) == "as it is"
    assert mean_of_parts([(3, torch.tensor(1.0)), (1, torch.tensor(5.0))]).item() == 2.0
    found = mean_of_parts(
        [(3, {"loss": 1.0, "text": "a", "each": torch.ones(3)}), (1, {"loss": 5.0, "text": "b", "each": torch.ones(1)})]
    )
    assert (found["loss"], found["text"], found["each"].tolist()) == (2.0, "b", [1.0])
    assert mean_of_parts([(2, {"a": 1}), (2, {"b": 3.0})]) == {"a": 1.0, "b": 3.0}


def test_parts_are_in_the_order_of_the_sources():
    assert parts_of(iter((2, 0, 2, 1))) == [BatchPart(0, (1,)), BatchPart(1, (3,)), BatchPart(2, (0, 2))]
