"""Profiles of weights: conversions keep them, other weights do not."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn

from detlab.governance.profiles import differences, distance
from detlab.pytorch.governance import ModelProbe
from detlab.pytorch.governance.profiles import MOST_BYTES, ProbeKeeper, probes_in, problems_of, sketched
from detlab.schemas.wire.governance.evidence import RecordedProfile


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Classifier(nn.Module):
    """Tokens with a mask, as a keyword; dropout, which a profile leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.body = nn.Linear(8, 16)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(16, 5)

    def forward(self, tokens: Any, mask: Any = None) -> Any:
        mixed = (self.embed(tokens) * mask[..., None]).mean(1)
        return {"logits": self.head(self.drop(torch.relu(self.body(mixed))))}


def made(seed: int = 1) -> Classifier:
    torch.manual_seed(seed)
    return Classifier()


def probe(samples: int = 16) -> ModelProbe:
    tokens = torch.randint(0, 20, (40, 6), generator=seeded())
    found = ModelProbe.taken((tokens,), {"mask": torch.ones(40, 6)}, samples)
    assert found is not None
    return found


def off(recorded: Any, measured: Any, rtol: float = 0.05) -> list[str]:
    return [one.code for one in differences(recorded, measured, rtol)]


def test_the_same_weights_have_the_same_profile_in_training_mode_too():
    model = made().train()
    first = probe().profile(model)
    assert first == probe().profile(model) == probe().profile(copy.deepcopy(model).eval())
    assert model.training
    assert (first.samples, first.dtype, len(first.output)) == (16, "float32", 16 * 8)
    assert set(first.layers) == {"embed", "body", "head"}
    assert off(first, first, 1e-12) == []


def exported(model: nn.Module) -> Any:
    one = probe()
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(model.eval(), one.args, one.kwargs), buffer)
    buffer.seek(0)
    return torch.export.load(buffer).module()


CONVERSIONS = {
    "bfloat16": lambda model: copy.deepcopy(model).bfloat16(),
    "float64": lambda model: copy.deepcopy(model).double(),
    "exported": exported,
    "numpy": lambda model: lambda *args, **kwargs: model.eval()(*args, **kwargs)["logits"].detach().numpy(),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_and_casts_keep_it(name):
    model = made()
    assert off(probe().profile(model), probe().profile(CONVERSIONS[name](model))) == []


def halved(model: nn.Module) -> None:
    model.head.weight.data *= 0.5


def permuted(model: nn.Module) -> None:
    model.head.weight.data = model.head.weight.data.flip(0)


def pruned(model: nn.Module) -> None:
    model.body.weight.data[::2] = 0


@pytest.mark.parametrize("change", [halved, permuted, pruned])
def test_other_weights_do_not(change):
    model = made()
    recorded = probe().profile(model)
    change(model)
    assert "PROFILE" in off(recorded, probe().profile(model))
    assert "PROFILE" in off(recorded, probe().profile(made(2)))


def test_another_probe_or_shape_is_said_and_no_layers_are_no_difference():
    recorded = probe().profile(made())
    (other,) = differences(recorded, recorded.model_copy(update={"probe": "sha256:" + "0" * 64}), 0.05)
    assert "another probe" in other.message
    (shape,) = differences(recorded, recorded.model_copy(update={"output": [1.0]}), 0.05)
    assert "another shape" in shape.message
    assert off(recorded, recorded.model_copy(update={"layers": {}})) == []
    worse = {name: [rms * 1.2, width] for name, (rms, width) in recorded.layers.items()}
    (layers,) = differences(recorded, recorded.model_copy(update={"layers": worse}), 0.05)
    assert "embed by 0.2" in layers.message
    assert distance([0.0], [0.0]) == 0
    assert distance([0.0], [1.0]) == float("inf")


def test_a_sketch_is_always_the_same_and_keeps_distances():
    rows = torch.randn(64, 3000, generator=seeded(3))
    other = rows + 0.1 * torch.randn(64, 3000, generator=seeded(4))
    assert sketched(rows[:2, :2], 2) == sketched(rows[:2, :2], 2)
    assert sketched(torch.tensor([[1.0]]), 1) == [-1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 1.0, 1.0]  # on every machine
    assert distance(sketched(rows, 64), sketched(other, 64)) == pytest.approx(0.1, rel=0.2)
    with pytest.raises(ValueError, match="no tensor of floating-point numbers"):
        sketched([torch.tensor([1]), "x"], 1)


def test_what_cannot_be_kept_is_no_probe_and_large_inputs_have_fewer_samples():
    assert ModelProbe.taken((object(),), {}, 8) is None
    assert ModelProbe.taken((torch.zeros(1, 3),), {}, 8) is None
    large = ModelProbe.taken((torch.zeros(9, MOST_BYTES // 16),), {}, 8)
    assert large is not None
    assert large.samples == 4
    assert probe().digest == probe().digest != probe(8).digest


def test_a_keeper_takes_the_first_forward_pass_and_goes_on_with_it():
    model, other = made(), made(2)
    keeper = ProbeKeeper(4, 0.05)
    assert keeper.record([model, other]) is None
    with keeper.watching([model, other]):
        model(torch.randint(0, 20, (6, 3), generator=seeded(1)), mask=torch.ones(6, 3))
        model(torch.randint(0, 20, (6, 3), generator=seeded(2)), mask=torch.ones(6, 3))
    model(torch.zeros(6, 3, dtype=torch.long), mask=torch.ones(6, 3))
    assert list(keeper.probes) == [0]
    again = ProbeKeeper(4, 0.05)
    again.resume(keeper.state())
    assert again.record([model, other]) == keeper.record([model, other]) is not None
    assert probes_in(None) == probes_in("x") == []
    with torch.no_grad():
        model.head.weight.fill_(float("nan"))
    assert keeper.record([model, other]) is None


def test_weights_that_were_read_are_judged_before_they_are_loaded():
    model = made()
    keeper = ProbeKeeper(4, 0.05)
    keeper.probes[0] = probe(4)
    recorded = RecordedProfile.model_validate(keeper.record([model]))
    states = [copy.deepcopy(model.state_dict())]
    fresh = made(5)
    before = copy.deepcopy(fresh.state_dict())
    assert problems_of(recorded, keeper.state(), [fresh], states) == []
    assert [one.code for one in problems_of(recorded, keeper.state(), [fresh], [before])] == ["PROFILE", "PROFILE"]
    assert all(torch.equal(value, before[name]) for name, value in fresh.state_dict().items())
    assert fresh.training
    assert "has no probe" in problems_of(recorded, None, [fresh], states)[0].message
    torn = [{"head.weight": torch.zeros(2, 2)}]
    assert "cannot be run" in problems_of(recorded, keeper.state(), [fresh], torn)[0].message


def test_tied_weights_and_a_model_of_two_outputs():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4, bias=False)
            self.b = nn.Linear(4, 4, bias=False)
            self.b.weight = self.a.weight

        def forward(self, x: Any) -> Any:
            return self.b(torch.tanh(self.a(x))), x.sum()

    one = ModelProbe.taken((torch.randn(5, 4, generator=seeded()),), {}, 5)
    assert one is not None
    model = Tied()
    apart = {name: value.clone() for name, value in model.state_dict().items()}
    assert off(one.profile(model), one.profile(Tied(), apart), 1e-9) == []
