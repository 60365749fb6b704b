"""The level `dp`: gradients of each sample, clipped, summed and noised by Opacus; its accountant counts each step."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from detlab.governance import GovernanceError, Plan, Refusal
from detlab.pytorch.governance.governed import Governed
from detlab.pytorch.governance.privacy.accounting import MECHANISM, MISSING, Accountant
from detlab.schemas.wire.governance.evidence import PrivacySpent

logger = logging.getLogger("detlab.pytorch")


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How steps are taken.

    Attributes:
        rate: Probability of each sample in each step.
        samples: In the training data.
        noise: Standard deviation of the noise, as a multiple of the norm of clipping.
    """

    rate: float
    samples: int
    noise: float


class PrivateTraining(Governed):
    """Holds a whole training to differential privacy; the rest of the policy is that of `Governed`.

    Args:
        plan: As there; all of it is at the level `dp`.
        models: One model, on its device.

    Raises:
        GovernanceError: As there. ENV: Opacus is missing. LEVEL, COUPLING: the model cannot be trained so.
    """

    levels = frozenset({"dp"})

    def __init__(self, plan: Plan, models: Sequence[Any]) -> None:
        self._outputs: list[Any] | None = []
        super().__init__(plan, models)
        assert plan.policy.dp is not None  # the policy's own check
        self.budget = plan.policy.dp
        self.accountant = Accountant(self.budget)
        self.sampling: Sampling | None = None
        self._clipping: Any = None
        self._ready = False
        self._buffers = _versions(self._models[0])

    def _prepare(self, engine: str) -> set[str]:
        """Have Opacus compute the gradient of each sample; no layer is routed, since all sources train all layers."""
        if len(self._models) > 1:
            raise GovernanceError.of("LEVEL", f"`dp` is for one model, and {len(self._models)} are wrapped")
        self._model = self._models[0]
        problems = unsuited(self._model)
        if problems:
            raise GovernanceError(problems, "this model cannot be trained at the level dp:")
        from opacus.grad_sample import GradSampleHooks

        try:
            self._hooks: Any = GradSampleHooks(self._model, batch_first=True, loss_reduction="sum", strict=True)
        except (NotImplementedError, ValueError) as error:
            raise GovernanceError.of("LEVEL", f"Opacus cannot compute the gradients of each sample: {error}") from error
        self._first_outputs = [
            module.register_forward_hook(self._note_output)
            for module in self._model.modules()
            if any(True for _ in module.parameters(recurse=False))
        ]
        return set()

    def _note_output(self, module: Any, _: Any, output: Any) -> None:
        if self._outputs is not None and self._router.open and isinstance(output, torch.Tensor):
            self._outputs.append(output)

    # --- the budget

    def begin_training(self, optimizer: Any, *, rate: float, samples: int, steps: int, saved: Any, again: bool) -> int:
        """Choose the noise, or go on with it; return how many further steps the budget allows.

        Args:
            optimizer: The only one.
            rate: Probability of each sample in each step.
            samples: In the training data.
            steps: Further steps until the end of the training, as far as it is planned; at least 1.
            saved: The state in the checkpoint that is gone on from, or None.
            again: Whether it is the same trial, whose noise stays.

        Raises:
            GovernanceError: LEVEL: the budget is spent, or delta is too large. STATE: the saved state cannot be read.
        """
        if self.budget.delta >= 1 / samples:
            message = f"governance.dp.delta is {self.budget.delta:g}, and with {samples} records it must be far below"
            raise GovernanceError.of("LEVEL", f"{message} {1 / samples:.2g}: else it allows to publish one of them")
        self.accountant = Accountant(self.budget, [] if saved is None else saved.get("history") or [])
        if saved is not None and saved.get("mechanism") != MECHANISM:
            message = f"the checkpoint was accounted for by {saved.get('mechanism')!r}, and not by {MECHANISM}"
            raise GovernanceError.of("STATE", message)
        noise = float(saved["noise"]) if again and saved is not None else self.accountant.noise_for(steps, rate)
        self.sampling = Sampling(rate, samples, noise)
        self._clipping = self._clipping_of(optimizer)
        left = self.accountant.steps_left(noise, rate, steps)
        logger.info(
            "level dp: noise %.4g, each of %d samples in a step with probability %.4g, %d steps, epsilon %.4g of %g",
            *(noise, samples, rate, left, self.accountant.epsilon(), self.budget.target_epsilon),
        )
        return left

    def _clipping_of(self, optimizer: Any) -> Any:
        assert self.sampling is not None
        world = torch.distributed.get_world_size() if _several() else 1
        from opacus.optimizers import DistributedDPOptimizer, DPOptimizer

        return (DistributedDPOptimizer if world > 1 else DPOptimizer)(
            optimizer,
            noise_multiplier=self.sampling.noise,
            max_grad_norm=self.budget.max_grad_norm,
            expected_batch_size=self.sampling.rate * self.sampling.samples / world,
            generator=_secret_generator(self._device),
        )

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps; nothing of the generator of the noise, which begins anew each time."""
        noise = None if self.sampling is None else self.sampling.noise
        return {"mechanism": MECHANISM, "history": self.accountant.history, "noise": noise}

    def spent(self) -> PrivacySpent:
        """Return what the evidence says of it."""
        assert self.sampling is not None
        return PrivacySpent(
            mechanism=MECHANISM,
            epsilon=self.accountant.epsilon(),
            delta=self.budget.delta,
            target_epsilon=self.budget.target_epsilon,
            max_grad_norm=self.budget.max_grad_norm,
            noise_multiplier=self.sampling.noise,
            sample_rate=self.sampling.rate,
            steps=self.accountant.steps,
        )

    # --- batches

    def begin(self, sources: Any, *, lent: bool = False) -> None:
        """Begin a batch; a batch of which no sample was drawn is lent: it adds noise alone."""
        super().begin(sources, lent=lent)
        self._forget()
        if self._outputs:
            self._outputs.clear()

    def end(self) -> None:
        """End a batch."""
        super().end()
        self._forget()

    def _forget(self) -> None:
        """Drop what Opacus keeps of forward passes, and the gradients of samples."""
        self._ready = False
        for module in self._model.modules():
            for name in ("activations", "max_batch_len"):
                if name in module.__dict__:
                    delattr(module, name)
        for parameter in self._parameters.values():
            parameter.grad_sample = None
            parameter.summed_grad = None
            parameter._forward_counter = 0
            if hasattr(parameter, "_current_grad_sample"):
                del parameter._current_grad_sample

    def _weight(self, rows: Sequence[int]) -> float:
        super()._weight(rows)
        return 1.0  # each sample's own gradient; the sum is divided by what is drawn on average

    def backward(self, losses: Any, **options: Any) -> None:
        """Compute the gradient of each sample."""
        if self._ready:
            raise GovernanceError.of("LEVEL", "`dp` takes one backward pass for each step, and this is the second")
        single = isinstance(losses, torch.Tensor) and losses.dim() == 1
        look = single and len(losses) > 1 and self._outputs is not None and not self._lent
        try:
            with warnings.catch_warnings():  # a first layer's inputs need no gradient, and so it should be
                warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
                if look:
                    self._look_apart(losses)
                super().backward(losses, **options)
        except ValueError as error:  # as Opacus says it of layers that are used in a way that it does not know
            raise GovernanceError.of("ENGINE", f"Opacus has no gradient of each sample: {error}") from error
        self._keep_apart(len(losses))
        self._ready = True

    def _keep_apart(self, count: int) -> None:
        """Require one gradient per sample of each parameter; one that is no number counts as zero in all of them."""
        for name, parameter in self._parameters.items():
            rows = parameter.grad_sample
            if not isinstance(rows, torch.Tensor):
                what = "several for each" if isinstance(rows, list) else "none"
                raise GovernanceError.of("ROWS", f"of {name} each sample should have one gradient, and there is {what}")
            if len(rows) != count:
                raise GovernanceError.of(
                    "ROWS", f"{name} has gradients of {len(rows)} rows, and the batch {count} samples"
                )
        every = [one.grad_sample for one in self._parameters.values()]
        whole = functools.reduce(torch.logical_and, (torch.isfinite(one.flatten(1)).all(1) for one in every))
        if self._lent:
            whole = whole[:0]
            for parameter in self._parameters.values():
                parameter.grad_sample = parameter.grad_sample[:0]
        if not bool(whole.all()):
            for parameter in self._parameters.values():
                parameter.grad_sample[~whole] = 0

    def _check_apart(self, losses: Any) -> None:
        """Do nothing: `_look_apart` has, by what layers give, since no layer is routed."""

    def _look_apart(self, losses: Any) -> None:
        """Refuse losses that depend on other samples, at the first batch with more than one."""
        outputs, self._outputs = self._outputs or [], None
        for handle in self._first_outputs:
            handle.remove()
        taken = [one for one in outputs if one.requires_grad and one.dim() > 0 and len(one) == len(losses)]
        if not taken:
            return
        half = torch.arange(len(losses), device=self._device) % 2 == 0
        self._hooks.disable_hooks()
        try:
            found = torch.autograd.grad(losses, taken, half.to(losses.dtype), retain_graph=True, allow_unused=True)
        except RuntimeError as error:  # of graphs that can be differentiated once only
            logger.info("whether the losses mix samples could not be looked at: %s", error)
            return
        finally:
            self._hooks.enable_hooks()
        if any(one is not None and bool((torch.nan_to_num(one[~half], nan=0.0) != 0).any()) for one in found):
            raise GovernanceError.of("COUPLING", "the loss of a sample depends on other samples of the batch")

    # --- steps

    def before_step(self, optimizer: Any, scaler: Any = None) -> None:
        """Look at what happened since the last step, and at who steps.

        Raises:
            GovernanceError: As there; LEVEL: a scaler, another optimizer, or a step without a backward pass;
                COUPLING: the model keeps something of its samples in a buffer.
        """
        super().before_step(optimizer, scaler)
        found = []
        if scaler is not None and scaler.is_enabled():
            found.append(Refusal("LEVEL", "a gradient scaler skips steps by what gradients are; use bf16 without one"))
        if self._clipping is None or optimizer is not self._clipping.original_optimizer:
            found.append(Refusal("LEVEL", "`dp` is for one optimizer, in the training of a PyTorchTrial"))
        elif not self._ready:
            found.append(Refusal("LEVEL", "`dp` takes a backward pass for each step, and there was none"))
        changed = [name for name, one in _versions(self._models[0]).items() if one != self._buffers.get(name)]
        if changed:
            message = f"the buffer {changed[0]} was changed in training: what it holds of samples would have no noise"
            found.append(Refusal("COUPLING", message))
        if found:
            raise GovernanceError(found, "the level dp cannot be held:")

    def reduce(self, parameters: Iterable[Any], *, batches: int = 1, average: bool = True) -> None:
        """Clip and sum the gradients of the samples, add noise, and divide by the number of samples on average."""
        assert self._clipping is not None  # `before_step` has looked
        sampling = self.sampling
        assert sampling is not None
        if self.accountant.steps_left(sampling.noise, sampling.rate, 1) < 1:
            message = f"another step would exceed epsilon {self.budget.target_epsilon:g}"
            raise GovernanceError.of("LEVEL", f"the privacy budget is spent: {message}")
        self.accountant.step(sampling.noise, sampling.rate)
        self._clipping.pre_step()
        if _several():
            self._clipping.reduce_gradients()

    def groups(self, parameters: Iterable[Any]) -> list[list[Any]]:
        """Return all together: what is clipped then has its noise already."""
        return [list(parameters)]

    def after_step(self, optimizers: Iterable[Any]) -> None:
        """Take note of a step."""
        super().after_step(optimizers)
        self._forget()

    # --- what is measured

    def metrics(self) -> dict[str, Any]:
        """Return the `gov/` metrics, with what is spent."""
        report = super().metrics()
        del report["gov/depth"]  # no layer is routed, so nobody has looked at what a source gave to it
        return {**report, "gov/epsilon": self.accountant.epsilon()}


def unsuited(model: Any) -> list[Refusal]:
    """Return why a model cannot be trained with Opacus: layers that mix samples, or whose gradients it does not know.

    Raises:
        GovernanceError: ENV: Opacus cannot be imported.
    """
    try:
        from opacus.validators import ModuleValidator
    except ImportError as error:
        raise GovernanceError.of("ENV", MISSING.format(error)) from error
    was = model.training
    model.train()
    found = list(_said_of(ModuleValidator.validate(model, strict=False)))
    model.train(was)
    return found


def _said_of(errors: Iterable[Exception]) -> Iterator[Refusal]:
    for error in errors:
        said = " ".join(str(error).split())
        code = "COUPLING" if "BatchNorm" in said else "LEVEL"
        yield Refusal(code, f"{said[:300]}; opacus.validators.ModuleValidator.fix(model) replaces what it can")


def _versions(model: Any) -> dict[str, int]:
    return {name: one._version for name, one in model.named_buffers()}


def _several() -> bool:
    return (
        torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and torch.distributed.get_world_size() > 1
    )


def _secret_generator(device: Any) -> Any:
    """Return a generator that nobody can foretell: its seed is the operating system's, and is kept nowhere."""
    generator = torch.Generator(device=device)
    generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
    return generator
