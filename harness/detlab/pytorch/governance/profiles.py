"""A frozen probe of each model, kept in checkpoints, and profiles of what a model makes of it.

    probe = pytorch.load_probe("checkpoint/")      # a folder, as of det checkpoint download
    measured = probe.profile(converted)            # anything that takes the model's inputs: cast, exported, quantised
    Path("profile.json").write_text(measured.model_dump_json())

Then `det governance verify UUID --profile profile.json` compares it with what was signed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from detlab.governance import Refusal
from detlab.governance.profiles import differences
from detlab.pytorch.data.epoch import forked_rng
from detlab.pytorch.governance.spread import LayerSpread
from detlab.pytorch.parallel.unwrapping import bare
from detlab.schemas.wire.governance.evidence import ModelProfile, RecordedProfile

logger = logging.getLogger("detlab.pytorch")
STATE = "probe"
"""Key of the state of a checkpoint."""
MOST_BYTES = 16 * 1024 * 1024
"""Of a probe: of larger inputs fewer samples are taken."""
SKETCH = 8
"""Numbers to which the outputs of each sample are projected."""
_AT_ONCE = 2**18


@dataclasses.dataclass(frozen=True)
class ModelProbe:
    """Inputs of a model, as its forward pass was called with them.

    Attributes:
        args: Positional ones; tensors are on the CPU, with samples in their first dimension.
        kwargs: By keyword.
        samples: How many.
        model: Which of the trial's models it is of.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    samples: int
    model: int = 0

    @classmethod
    def taken(cls, args: Sequence[Any], kwargs: Mapping[str, Any], samples: int, model: int = 0) -> ModelProbe | None:
        """Return the first samples of what a forward pass was called with; None if it cannot be kept."""
        leaves, structure = pytree.tree_flatten((tuple(args), dict(kwargs)))
        batch = next((one.shape[0] for one in leaves if isinstance(one, torch.Tensor) and one.dim()), 0)
        plain = all(isinstance(one, (torch.Tensor, int, float, str, bool, type(None))) for one in leaves)
        each = sum(one[0].nbytes for one in leaves if isinstance(one, torch.Tensor) and one.dim() and len(one) == batch)
        count = min(samples, batch, MOST_BYTES // max(1, each))
        if not plain or count < 2:
            return None
        made, kept = pytree.tree_unflatten([_cut(one, batch, count) for one in leaves], structure)
        return cls(made, kept, count, model)

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"model": self.model, "samples": self.samples, "args": list(self.args), "kwargs": dict(self.kwargs)}

    @property
    def digest(self) -> str:
        """SHA-256 of the inputs: their places, types, shapes and bytes."""
        found = hashlib.sha256(f"{self.samples}\n".encode())
        for path, one in pytree.tree_flatten_with_path((list(self.args), self.kwargs))[0]:
            found.update(f"{pytree.keystr(path)}\n".encode())
            if isinstance(one, torch.Tensor):
                found.update(f"{one.dtype} {list(one.shape)}\n".encode())
                found.update(one.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
            else:
                found.update(f"{one!r}\n".encode())
        return f"sha256:{found.hexdigest()}"

    def profile(self, model: Callable[..., Any], state: Mapping[str, Any] | None = None) -> ModelProfile:
        """Return what a model makes of the probe.

        Args:
            model: A module, which is run in evaluation mode, or any other callable that takes the model's inputs, such
                as one around an exported model. Inputs are moved and cast to where and what a module's parameters are.
            state: Weights in place of those that it has, by the module's own names.

        Raises:
            ValueError: It gives no outputs that are finite numbers.
        """
        module = bare(model) if isinstance(model, torch.nn.Module) else None
        args, kwargs = _fitting((self.args, self.kwargs), module)
        spread = LayerSpread([] if module is None else [module])
        device = torch.device("cpu") if module is None else _device(module)
        with torch.no_grad(), untouched_rng(device), _evaluating(module), spread:
            if module is None:
                output = model(*args, **kwargs)
            elif state is None:
                output = module(*args, **kwargs)
            else:
                state = {name: one.to(device) for name, one in state.items()}
                output = torch.func.functional_call(module, state, args, kwargs, tie_weights=False)
        sketch = sketched(output, self.samples)
        layers = {name: [_short(one) for one in values] for name, values in spread.figures().items()}
        if not all(map(_finite, (sketch, *layers.values()))):
            raise ValueError("the model gives numbers for the probe that are not finite")
        dtype = next((str(one.dtype) for one in (module.parameters() if module is not None else ())), "")
        return ModelProfile(
            model=self.model,
            probe=self.digest,
            samples=self.samples,
            dtype=dtype.removeprefix("torch."),
            output=sketch,
            layers=layers,
        )


def _cut(one: Any, batch: int, count: int) -> Any:
    if not isinstance(one, torch.Tensor):
        return one
    kept = one[:count] if one.dim() and len(one) == batch else one
    return kept.detach().cpu().clone()


@contextlib.contextmanager
def untouched_rng(device: Any) -> Iterator[None]:
    """Run the block with random numbers that are always the same; restore the state of all generators afterwards."""
    devices = [device] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices), forked_rng(0):
        yield


def _device(module: torch.nn.Module) -> torch.device:
    return next((one.device for one in module.parameters()), torch.device("cpu"))


def _fitting(inputs: Any, module: torch.nn.Module | None) -> Any:
    """Return inputs where a module is, and floating-point ones in its type."""
    first = None if module is None else next((one for one in module.parameters() if one.is_floating_point()), None)
    if first is None:
        return inputs

    def fit(one: Any) -> Any:
        if not isinstance(one, torch.Tensor):
            return one
        return one.to(first.device, first.dtype if one.is_floating_point() else None)

    return pytree.tree_map(fit, inputs)


@contextlib.contextmanager
def _evaluating(module: torch.nn.Module | None) -> Iterator[None]:
    """Put a module and all parts of it into evaluation mode, and back as each was."""
    were = [] if module is None else [(one, one.training) for one in module.modules()]
    if module is not None:
        with contextlib.suppress(NotImplementedError):  # of an exported module, which has one mode
            module.eval()
    try:
        yield
    finally:
        for one, was in were:
            one.training = was


def sketched(output: Any, samples: int) -> list[float]:
    """Return the outputs of each sample, projected to a few numbers by fixed random signs; distances hardly change.

    Raises:
        ValueError: There is no tensor of floating-point numbers among them.
    """
    leaves = [torch.as_tensor(one) for one in pytree.tree_leaves(output) if hasattr(one, "__array__")]
    leaves = [one.detach() for one in leaves if one.is_floating_point() and one.dim()]
    by_sample = [one for one in leaves if len(one) == samples] or leaves
    if not by_sample:
        raise ValueError("the model gives no tensor of floating-point numbers for the probe")
    rows = samples if len(by_sample[0]) == samples else 1
    total = torch.zeros(rows, SKETCH, dtype=torch.float64)
    for place, one in enumerate(by_sample):
        flat = one.reshape(rows, -1)
        for start in range(0, flat.shape[1], _AT_ONCE):
            part = flat[:, start : start + _AT_ONCE].cpu().double()
            total += part @ _signs(part.shape[1], f"{place} {start}")
    return [_short(one) for one in total.flatten().tolist()]


def _signs(count: int, name: str) -> Any:
    """Return as many rows of random signs, always the same."""
    drawn = hashlib.shake_256(f"detlab profile {name}".encode()).digest(count)  # one bit for each of eight columns
    bits = torch.frombuffer(bytearray(drawn), dtype=torch.uint8)[:, None] >> torch.arange(SKETCH, dtype=torch.uint8) & 1
    return bits.double() * 2 - 1


def _short(value: float) -> float:
    return float(f"{value:.7g}")


def _finite(values: Sequence[float]) -> bool:
    return bool(torch.tensor(list(values), dtype=torch.float64).isfinite().all())


# --- of a trial


class ProbeKeeper:
    """The probes of a trial: taken once, from its first validation, and kept from then on.

    Args:
        samples: Most samples of each.
        rtol: How far a profile may be off.

    Attributes:
        probes: By the index of their models.
        looked: Whether a validation was watched; the same on all ranks.
    """

    def __init__(self, samples: int, rtol: float) -> None:
        self._samples, self._rtol = samples, rtol
        self.looked = False
        self.probes: dict[int, ModelProbe] = {}

    @contextlib.contextmanager
    def watching(self, models: Sequence[Any]) -> Iterator[None]:
        """Take the inputs of the first forward pass of each model that has no probe yet."""
        self.looked = True
        handles = [
            model.register_forward_pre_hook(self._hook(index), with_kwargs=True)
            for index, model in enumerate(models)
            if index not in self.probes
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, index: int) -> Callable[[Any, Any, Any], None]:
        def take(_: Any, args: Any, kwargs: Any) -> None:
            if index not in self.probes and (found := ModelProbe.taken(args, kwargs, self._samples, index)) is not None:
                self.probes[index] = found

        return take

    def state(self) -> list[dict[str, Any]]:
        """Return what a checkpoint keeps."""
        return [one.state for _, one in sorted(self.probes.items())]

    def record(self, models: Sequence[Any]) -> dict[str, Any] | None:
        """Return the profiles of models as they are now; None if there is no probe yet, or no finite number."""
        found = self._measured(models)
        return RecordedProfile(rtol=self._rtol, models=found).model_dump(mode="json") if found else None

    def report(self, models: Sequence[Any]) -> dict[str, Any]:
        """Return `gov/profile`: in how many directions what each layer makes of the probe differs; nothing without one.

        The digest of the probe says which numbers may be compared: those of one trial, which keeps its probe.
        """
        found = self._measured(models)
        layers = {
            f"model_{one.model}.{name}" if len(models) > 1 else name: dimension
            for one in found
            for name, (_, dimension) in one.layers.items()
        }
        told = {"probe": [one.probe for one in found], "layers": list(layers), "dimension": list(layers.values())}
        return {"gov/profile": told} if layers else {}

    def _measured(self, models: Sequence[Any]) -> list[ModelProfile]:
        found = []
        for index, probe in sorted(self.probes.items()):
            try:
                found.append(probe.profile(models[index]))
            except ValueError as error:
                logger.warning("model %d has no profile now: %s", index, error)
        return found

    def resume(self, kept: Any) -> None:
        """Go on with the probes of a checkpoint of the same trial."""
        self.probes = {one.model: one for one in probes_in(kept)}
        self.looked = bool(self.probes)


def probes_in(kept: Any) -> list[ModelProbe]:
    """Return the probes that the state of a checkpoint has."""
    listed = kept if isinstance(kept, list) else []
    return [
        ModelProbe(tuple(one["args"]), dict(one["kwargs"]), int(one["samples"]), int(one["model"])) for one in listed
    ]


def problems_of(
    recorded: RecordedProfile, kept: Any, models: Sequence[Any], states: Sequence[Mapping[str, Any]]
) -> list[Refusal]:
    """Return PROFILE for weights that do not make of the kept probes what was recorded; nothing is loaded.

    Args:
        recorded: With the checkpoint.
        kept: What it keeps of probes.
        models: Of the trial, which run with these weights.
        states: The weights that were read of it, by the models' own names.
    """
    probes = {one.model: one for one in probes_in(kept)}
    found = []
    for one in recorded.models:
        probe = probes.get(one.model)
        if probe is None or one.model >= min(len(models), len(states)):
            what = f"the checkpoint has no probe of model {one.model}, of which a profile was recorded"
            found.append(Refusal("PROFILE", what))
            continue
        try:
            found += differences(one, probe.profile(models[one.model], states[one.model]), recorded.rtol)
        except (ValueError, RuntimeError, KeyError, TypeError) as error:
            said = str(error).partition("\n")[0][:200]
            found.append(Refusal("PROFILE", f"model {one.model} cannot be run on the probe with these weights: {said}"))
    return found
