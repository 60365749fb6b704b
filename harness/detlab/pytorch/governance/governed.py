"""`Governed`: one model or several whose training a policy governs, in the trainer or in a loop of the user's own."""

from __future__ import annotations

import contextlib
import datetime
import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from detlab.governance import GovernanceError, Plan, Refusal, TrainedParameter, parameters_of
from detlab.governance.sources import rows_of
from detlab.pytorch.governance.buffers import BufferWatch
from detlab.pytorch.governance.engines import route
from detlab.pytorch.governance.gates import ClipNorm, close, couplings
from detlab.pytorch.governance.guard import GradientGuard, Watch
from detlab.pytorch.governance.meter import Meter
from detlab.pytorch.governance.microbatch import SourceBatches, SourceParts
from detlab.pytorch.governance.preflight import PreflightResult, try_layers
from detlab.pytorch.governance.router import Router, misfits, replaced, splitters, trained_tensors, unenforced
from detlab.pytorch.parallel.unwrapping import bare, plain_name

logger = logging.getLogger("detlab.pytorch")

Backward = Callable[[Any, Any, bool], None]
"""Differentiates losses: `backward(losses, gradient, retain_graph)`."""


def parameters_of_models(models: Sequence[Any]) -> list[TrainedParameter]:
    """Return what is trained, in order; the names of several models begin with `model_0.`, `model_1.`."""
    return [
        TrainedParameter(plain_name(one.name), one.shape, tuple(map(plain_name, one.aliases)), one.kind)
        for index, model in enumerate(models)
        for one in parameters_of(bare(model), f"model_{index}." if len(models) > 1 else "")
    ]


class Governed(SourceBatches):
    """Holds training to a plan; all ranks make one and call the same methods in step.

    Args:
        plan: From `compile_policy(policy, parameters_of_models(models))`.
        models: Models on their device, wrapped in DDP or compiled or not; not run yet since they were compiled.

    Attributes:
        plan: The plan.
        meter: What is measured.

    Raises:
        GovernanceError: The plan is of another model (POLICY), a level cannot be enforced (LEVEL), a source's last day
            is over (REVOKED), a layer with different factors cannot be routed, or parameters are split over processes
            in another way than by FSDP2 (ENGINE). All is listed.
    """

    levels = frozenset({"direct", "isolated"})
    """What it can hold."""

    def __init__(self, plan: Plan, models: Sequence[Any]) -> None:
        self._wrapped = list(models)
        models = [bare(model) for model in models]
        for module in splitters(models):
            module.reshard()
        parameters = trained_tensors(models)
        problems = [
            *misfits(plan, parameters),
            *unenforced(plan, models, parameters),
            *plan.policy.expired(datetime.datetime.now(datetime.UTC).date()),
        ]
        levels = {level for row in plan.levels for level in row} - self.levels
        problems += [Refusal("LEVEL", f"the level {level!r} is enforced by a PyTorchTrial alone") for level in levels]
        if problems:
            raise GovernanceError(problems)
        for one in plan.warnings if _rank() == 0 else ():
            logger.warning("governance: %s: %s", one.code, one.message)
        self.plan = plan
        self._device = next(iter(parameters.values())).device
        self._parameters = parameters
        self._models = models
        self._router = Router(plan, parameters, self._device)
        self._parts = None
        self._kept: BufferWatch | None = None
        self._late: list[Refusal] = []
        routed = self._prepare(plan.policy.engine)
        self._isolated = close(models, self._router)
        self.meter = Meter(plan, self._device, routed)
        self._guard = GradientGuard(self._router, parameters, routed)
        self._guard.follow(splitters(models))
        self._index = plan.policy.index()
        self._without = len(plan.sources) if plan.default is not None else None
        self._said: set[str] = set()
        self._batches = 0
        self._rows: list[int] | None = None
        self._lent = False
        self._counted = False
        self._counts: list[int] = [0] * (len(plan.sources) + 1)
        self._first_size = 0
        self._step_counts = [0] * (len(plan.sources) + 1)
        self._stepped = True

    def _prepare(self, engine: str) -> set[str]:
        """Have layers route gradients; return the names of the parameters whose routed gradients are seen."""
        if engine == "microbatch":
            self._parts = SourceParts(self.plan, self._router, self._parameters, self._wrapped, self._models)
            return set(self._parameters)
        columns = {id(one): place.index for one in self._parameters.values() if (place := self._router.place(one))}
        self._kept = BufferWatch(self.plan, self._wrapped, self._models, columns)
        if problems := self._kept.known():
            raise GovernanceError(problems)
        return route(self._models, self._router, self._parameters, engine)

    def preflight(self) -> PreflightResult:
        """Try each routed layer on made-up inputs; nothing of the training changes. Before the first batch alone."""
        if self._parts is not None:
            return self._parts.scaling.tried()
        return try_layers(self._models, self._router, self._parameters)

    # --- batches

    def begin(self, sources: Any, *, lent: bool = False) -> None:
        """Begin a batch; see `batch`.

        Args:
            sources: As there; None if they come with `backward`.
            lent: Whether its samples are another rank's, so that it trains nothing.
        """
        anew = replaced(self._models, self._router) if self._guard.due(self._batches) else []
        if anew:
            raise GovernanceError(anew)
        self._refuse([*self._told_late(), *self._guard.outside(), *self._guard.changed()])
        if self._stepped:
            self._stepped = False
            self._first_size = 0
            self._step_counts = [0] * len(self._step_counts)
        self._rows = None if sources is None else self._rows_of(sources)
        self._lent = lent
        self._counted = False
        if self._parts is not None:
            self._begin_parts(self._parts)
        else:
            self._router.begin(None if lent else self._rows, nobody=lent)
            if self._guard.due(self._batches) and not self._router.compiled:
                self._router.watch = Watch(self._router, self.meter, first=self._batches == 0)
        if self._kept is not None:
            self._kept.begin()
        self._batches += 1

    @contextlib.contextmanager
    def serving(self, source: str | None) -> Iterator[None]:
        """Open the modules of an isolated source in evaluation mode, where they give zeros otherwise.

        Args:
            source: Its name; all samples that run meanwhile count as its own. None, or one that is not isolated: no
                module is opened.
        """
        before, self._router.serving = self._router.serving, source
        try:
            yield
        finally:
            self._router.serving = before

    def _rows_of(self, sources: Any) -> list[int]:
        if isinstance(sources, torch.Tensor):
            sources = sources.tolist()
        given = list(sources)
        try:
            numbers = [operator.index(one) for one in given]
        except TypeError:
            return rows_of(given, self._index, without=self._without)
        if bad := [one for one in numbers if not 0 <= one < len(self.plan.sources)]:
            raise GovernanceError.of(
                "SOURCE", f"there is no source number {bad[0]}: {len(self.plan.sources)} are declared"
            )
        return numbers

    def backward(
        self, losses: Any, *, source_ids: Any = None, retain_graph: bool = False, by: Backward | None = None
    ) -> None:
        """Add the routed gradients of a batch to those of the parameters.

        Args:
            losses: One loss per sample, of shape [batch].
            source_ids: The source of each sample, if they were not known when the batch began; else they must agree.
            retain_graph: Keep the graph for another backward pass.
            by: Differentiates; default `losses.backward`.

        Raises:
            GovernanceError: SCALAR, SAMPLES, SOURCE, ROWS: the arguments do not fit. COUPLING: a loss depends on other
                samples. LEAK, BYPASS, OPTIMIZER: gradients or parameters were changed around the router.
        """
        if not isinstance(losses, torch.Tensor) or losses.dim() != 1:
            what = f"a tensor of shape {list(losses.shape)}" if isinstance(losses, torch.Tensor) else repr(losses)
            raise GovernanceError.of("SCALAR", f"a policy needs one loss per sample, of shape [batch], not {what}")
        if self._parts is not None:
            self._refuse(self._parts.before_backward(stepped=self._stepped))
        rows = self._agreed(source_ids, len(losses))
        if self._router.compiled:
            self._router.watch = None
        seeds = torch.full_like(losses, self._weight(rows))
        if self._batches == 1 and self._router.watch is not None and not self._counted:
            self._check_apart(losses)
        self._counted = True
        self._guard.begin(armed=self._guard.due(self._batches - 1))
        try:
            (by or _backward)(losses, seeds, retain_graph)
        finally:
            found = self._guard.end()
        if self._parts is not None:
            self._parts.after_backward()
        self._refuse([*found, *self._changed_buffers()])

    def _changed_buffers(self) -> list[Refusal]:
        """Return COUPLING for buffers that the batch has changed and that are closed to one of its sources."""
        if self._kept is None or (self._rows is None and not self._lent):
            return []
        return self._kept.changed(self._rows or (), lent=self._lent)

    def _end_batch(self) -> None:
        if self._kept is not None:  # a forward pass without a backward pass leaves its trace, too
            self._late = self._changed_buffers()
            self._kept.end()
        super()._end_batch()

    def _told_late(self) -> list[Refusal]:
        found, self._late = self._late, []
        return found

    def _agreed(self, source_ids: Any, count: int) -> list[int]:
        """Return the row of each sample, by what the batch began with or by what is said now."""
        if self._lent:
            rows = [self._router.nobody] * count
        elif source_ids is None and self._rows is None:
            raise GovernanceError.of("SAMPLES", "the sources of this batch's samples are unknown")
        else:
            said = None if source_ids is None else self._rows_of(source_ids)
            rows = said or self._rows or []
            if self._rows is not None and rows != self._rows:
                raise GovernanceError.of("SAMPLES", "source_ids differ from the sources of the samples in this batch")
        if len(rows) != count:
            raise GovernanceError.of("SAMPLES", f"{count} losses were given for {len(rows)} samples of known source")
        if self._rows is None:
            if self._router.compiled and not self._lent:
                raise GovernanceError.of("SAMPLES", "a compiled model needs the sources before its forward pass")
            self._router.fill(rows)
            self._rows = rows
        self.meter.present = self._guard.present = frozenset(rows) - {self._router.nobody}
        return rows

    def _weight(self, rows: Sequence[int]) -> float:
        """Return the seed of each loss: with it, the mean over ranks and samples is that of all samples of the step.

        Batches of one step may differ in size: all have the seed of the first, and `reduce` corrects for their sum.
        """
        if not self._counted:
            counts = [0] * len(self._counts)
            for row in rows:
                if row != self._router.nobody:
                    counts[row] += 1
            self._counts = self._of_all_ranks(counts)
            self._step_counts = [had + new for had, new in zip(self._step_counts, self._counts, strict=True)]
            self.meter.counts = [had + new for had, new in zip(self.meter.counts, self._counts, strict=True)]
            self._first_size = self._first_size or sum(self._counts)
        return _world() / max(1, self._first_size)

    def _of_all_ranks(self, numbers: list[int]) -> list[int]:
        if _world() == 1:
            return numbers
        shared = torch.tensor(numbers, dtype=torch.long, device=self._device)
        dist.all_reduce(shared)
        summed: list[int] = shared.tolist()
        return summed

    def _check_apart(self, losses: Any) -> None:
        """Refuse losses that depend on other samples: half of them may give no gradient to rows of the other half."""
        if len(losses) < 2 and not splitters(self._models):  # in a split model each pass exchanges with all ranks
            return
        generator = torch.Generator().manual_seed(len(losses))
        half = torch.zeros(len(losses), dtype=torch.bool)
        half[torch.randperm(len(losses), generator=generator)[: len(losses) // 2]] = True
        half = half.to(self._device)
        watch, self._router.watch.half = self._router.watch, half
        taken = watch.inputs or []
        targets = [*self._guard.live.values(), *(one for one, _ in taken)]
        try:
            found = torch.autograd.grad(losses, targets, half.to(losses.dtype), retain_graph=True, allow_unused=True)
            for (_, places), gradient in zip(taken, found[len(self._parameters) :], strict=True):
                if gradient is not None:
                    watch.entered(gradient, places)
        except RuntimeError as error:  # of graphs that can be differentiated once only
            logger.info("whether the losses mix samples could not be looked at: %s", error)
        finally:
            watch.half = None
        coupled = [name for name, is_so in watch.coupled.items() if bool(is_so)]
        if coupled:
            message = f"the loss of a sample depends on other samples of the batch, at {coupled[0]}"
            self._refuse([Refusal("COUPLING", message)])

    # --- steps

    def reduce(self, parameters: Iterable[Any], *, batches: int = 1, average: bool = True) -> None:
        """Divide gradients so that all samples of a step weigh alike, after they were averaged over the ranks.

        Args:
            parameters: Of an optimizer.
            batches: How many batches the step takes together.
            average: Whether the step takes their mean, or their sum.
        """
        total = sum(self._step_counts)
        with_gradients = [one for one in parameters if one.grad is not None]
        divisor = total / max(1, self._first_size) / (1 if average else batches)
        if divisor not in (0.0, 1.0) and with_gradients:
            torch._foreach_div_([one.grad for one in with_gradients], divisor)
        if self.plan.policy.normalize == "per_layer":
            for one in with_gradients:
                self._by_factors(one, total)

    def _by_factors(self, parameter: Any, total: int) -> None:
        place = self._router.place(parameter)
        if place is None:
            return
        column = self._router.distinct[place.column]
        factors = sum(count * scale for count, scale in zip(self._step_counts, column, strict=False))
        if factors > 0:
            parameter.grad.mul_(total / factors)

    def groups(self, parameters: Iterable[Any]) -> list[list[Any]]:
        """Return parameters in lists to be clipped apart: those with the same factors together, or all."""
        listed = list(parameters)
        if self.plan.policy.clip == "global":
            return [listed]
        found: dict[int, list[Any]] = {}
        for one in listed:
            place = self._router.place(one)
            found.setdefault(-1 if place is None else place.column, []).append(one)
        return list(found.values())

    def apart(self, clip_grads: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
        """Return a function that clips each of these lists by itself.

        Raises:
            GovernanceError: CLIP: a source is isolated, and the function might look at the gradients of all.
        """
        if clip_grads is None:
            return None
        if self._isolated and type(clip_grads) is not ClipNorm:
            named = ", ".join(map(repr, sorted(self._isolated)))
            self._refuse([Refusal("CLIP", f"clip_grads may couple {named}, which is isolated, with other sources")])
        return lambda parameters: [clip_grads(group) for group in self.groups(parameters)]

    def before_step(self, optimizer: Any, scaler: Any = None) -> None:
        """Look at what happened since the last step of ours, and at who steps.

        Args:
            optimizer: Which steps now.
            scaler: A gradient scaler; None if there is none.

        Raises:
            GovernanceError: BYPASS, OPTIMIZER. LEVEL: a source is isolated, and the step would couple it with others.
        """
        coupled = couplings(self._isolated, optimizer, scaler)
        self._refuse([*self._told_late(), *self._guard.outside(), *self._guard.changed(), *coupled])

    def after_step(self, optimizers: Iterable[Any]) -> None:
        """Take note of a step of ours."""
        self._stepped = True
        self._guard.note(closely=self._guard.due(self._batches))
        rates = {}
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if (place := self._router.place(parameter)) is not None:
                        rates[place.index] = float(group["lr"])
        self.meter.rates = rates

    def step(self, optimizer: Any, *, batches: int = 1) -> None:
        """Step an optimizer and drop the gradients; for loops of the user's own.

        Args:
            optimizer: An optimizer of the models.
            batches: How many batches the step takes together.
        """
        self.before_step(optimizer)
        self.reduce((one for group in optimizer.param_groups for one in group["params"]), batches=batches)
        optimizer.step()
        optimizer.zero_grad()
        self.after_step([optimizer])

    def names_in(self, optimizer: Any) -> list[str]:
        """Return the names of an optimizer's parameters, in its order; empty for what is not trained.

        A checkpoint keeps them as `optimizer_parameters`, so that a source can be taken out of it.
        """
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        return [names.get(id(one), "") for group in optimizer.param_groups for one in group["params"]]

    # --- what is measured

    def metrics(self) -> dict[str, Any]:
        """Return the `gov/` metrics of all ranks, since this process started; all ranks call it.

        Raises:
            GovernanceError: COVER, LEAK: a bound of `governance.constraints` is not kept. BYPASS, OPTIMIZER.
        """
        self._refuse([*self._told_late(), *self._guard.outside(), *self._guard.changed()])
        depth, leak = self.meter.depth(), torch.tensor(self._guard.leak, dtype=torch.float64, device=self._device)
        if _world() > 1:
            depth = depth.clone()
            dist.all_reduce(depth)
            dist.all_reduce(leak)
        report = self.meter.report(depth, float(leak))
        codes = {"provenance_coverage": ("COVER", "gov/coverage"), "leak_mass": ("LEAK", "gov/leak_mass")}
        broken = []
        if self.plan.policy.targets and self._router.compiled:
            broken.append(
                Refusal("TARGET", "a model is compiled, and nobody can see in there what sources give to layers")
            )
        for name, (low, high) in self.plan.policy.constraints.items():
            if name not in codes:  # searches keep the others, and what breaks one is stopped
                continue
            code, metric = codes[name]
            value = report[metric]
            if (low is not None and value < low) or (high is not None and value > high):
                broken.append(
                    Refusal(code, f"{metric} is {value:g}, and governance.constraints.{name} does not allow that")
                )
        self._refuse(broken)
        return {**report, "gov/violations": self.meter.violations}

    def _refuse(self, found: Sequence[Refusal]) -> None:
        self.refuse(found, "the policy was violated:")

    def refuse(self, found: Sequence[Refusal], headline: str) -> None:
        """Raise, or under `enforce: audit` log each kind once and count it.

        Args:
            found: Nothing, or what is refused.
            headline: What cannot go on.

        Raises:
            GovernanceError: The policy is strict.
        """
        if not found:
            return
        if self.plan.policy.enforce == "strict":
            raise GovernanceError(found, headline)
        self.meter.violations += len(found)
        for one in found:
            if one.code not in self._said:
                self._said.add(one.code)
                logger.warning("the policy was violated (enforce: audit, training goes on): %s", one)


def _backward(losses: Any, seeds: Any, retain_graph: bool) -> None:
    losses.backward(seeds, retain_graph=retain_graph)


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def _world() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
