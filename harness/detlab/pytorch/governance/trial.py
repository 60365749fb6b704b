"""The policy of a trial: from its experiment config, for its models and its data."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from detlab.governance import GovernanceError, Policy, Refusal, compile_policy, source_lookup
from detlab.pytorch.data.epoch import forked_rng
from detlab.pytorch.data.loader import DataLoader, to_device
from detlab.pytorch.data.poisson import steps_per_epoch
from detlab.pytorch.governance.governed import Governed, parameters_of_models
from detlab.pytorch.governance.planting import Canaries, LossesRead, numbers_of
from detlab.pytorch.governance.privacy.private_data import drawn_from, shape_problems
from detlab.pytorch.governance.private import PrivateTraining
from detlab.pytorch.governance.profiles import STATE as PROBES
from detlab.pytorch.governance.profiles import ProbeKeeper, problems_of
from detlab.pytorch.governance.recording import SegmentRecorder, roster_of
from detlab.pytorch.governance.spread import MOST_SAMPLES, LayerSpread
from detlab.pytorch.parallel.unwrapping import bare
from detlab.pytorch.units import Due, Epoch
from detlab.schemas.wire.governance.evidence import METADATA_KEY, RecordedProfile


def governed_by(config: Mapping[str, Any] | None, models: Sequence[Any]) -> Governed | None:
    """Return what holds models to the policy of an experiment config; None if it has none.

    Raises:
        GovernanceError: The policy does not fit the models, or cannot be enforced.
    """
    block = (config or {}).get("governance")
    if block is None:
        return None
    kinds = [type(module).__name__ for model in models for module in bare(model).modules()]
    plan = compile_policy(Policy.of(block), parameters_of_models(models), kinds=kinds)
    return PrivateTraining(plan, models) if plan.policy.level == "dp" else Governed(plan, models)


class GovernedTrial:
    """The part of `PyTorchTrialContext` that a policy governs."""

    _sample_ids: Any
    """Of `TrainingPosition`, the part beside this one."""
    device: Any
    distributed: Any
    models: list[Any]
    optimizers: list[Any]

    def __init__(self) -> None:
        self._canaries: Canaries | None = None
        self._canary_loader: Any = None
        self._reads_losses = False
        self._governed: Governed | None = None
        self._source_of: Any = None
        self._recorder: SegmentRecorder | None = None
        self._probes: ProbeKeeper | None = None

    def current_sources(self) -> list[str | None] | None:
        """Return the source of each sample in this rank's batch; None if the data set does not say it.

        It says so if it was made by `detlab.governance.label` or `combine`. Not a method of Determined.
        """
        if self._source_of is None or self._sample_ids is None:
            return None
        return [self._source_of(index) for index in self._sample_ids]

    @contextlib.contextmanager
    def serving(self, source: str) -> Iterator[None]:
        """Open the modules of an isolated source in a validation, where they give zeros otherwise.

        Args:
            source: Its name; all samples that run meanwhile count as its own. Without a policy nothing happens. Not a
                method of Determined.
        """
        with contextlib.nullcontext() if self._governed is None else self._governed.serving(source):
            yield

    def _use_data(self, loader: Any) -> None:
        """Take note of the training data."""
        dataset = getattr(loader, "dataset", None)
        self._source_of = source_lookup(dataset)
        if self._recorder is not None and self._source_of is not None:
            size = getattr(type(dataset), "__len__", None)
            self._recorder.roster = roster_of(self._source_of, size(dataset) if callable(size) else None)

    def _govern(self, governed: Governed | None) -> None:
        """Train under a policy from now on."""
        self._governed = governed
        self._recorder = None if governed is None else SegmentRecorder(governed.plan)
        asked = None if governed is None else governed.plan.policy.profile
        self._probes = None if asked is None else ProbeKeeper(asked.samples, asked.rtol)

    def _optimizer_names(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of which optimizer has which parameters; nothing without a policy."""
        if self._governed is None:
            return {}
        return {"optimizer_parameters": [self._governed.names_in(one) for one in self.optimizers]}

    def _begin_governed(self, epoch: int) -> None:
        if self._governed is not None:
            self._governed.begin(self.current_sources(), lent=self._sample_ids == [])
        if self._recorder is not None:  # under dp it is nobody's to know which samples a step has
            self._recorder.batch(epoch, None if self._private is not None else self._sample_ids)

    def _end_governed(self) -> None:
        if self._governed is not None:
            self._governed.end()

    def _governance_metrics(self) -> dict[str, Any]:
        """Return the `gov/` metrics of what was trained, none without a policy; all ranks call it."""
        return {} if self._governed is None else self._governed.metrics()

    # --- differential privacy

    @property
    def _private(self) -> PrivateTraining | None:
        return self._governed if isinstance(self._governed, PrivateTraining) else None

    def _draw(self, loader: Any, due: Due, progress: Any, restored: Any) -> tuple[Any, int | None]:
        """Return the training data as the level `dp` draws it, and after how many batches the budget is spent.

        At another level the data stays as it is, and nothing ends the training.

        Args:
            loader: What the trial has built.
            due: How long the training is.
            progress: How far it is.
            restored: The checkpoint that it goes on from, or None.

        Raises:
            GovernanceError: LEVEL, STATE: it cannot be trained so; all that the trial itself has to change is listed.
        """
        if (private := self._private) is None:
            return loader, None
        problems = shape_problems(self, loader)
        if problems:
            raise GovernanceError(problems, "this trial cannot be trained at the level dp:")
        drawn = drawn_from(loader, self.distributed.size)
        (optimizer,) = self.optimizers
        again = restored is not None and restored.same_trial
        done = progress.epochs_completed if isinstance(due.max_length, Epoch) else progress.steps_completed
        each = steps_per_epoch(drawn._sample_rate) if isinstance(due.max_length, Epoch) else 1
        length: Any = due.max_length.value
        left = private.begin_training(
            optimizer,
            rate=drawn._sample_rate,
            samples=len(drawn.dataset),
            steps=max(1, (length - done) * each),
            saved=None if restored is None else (restored.tree.get("trial_state") or {}).get("privacy"),
            again=again,
        )
        return drawn, progress.steps_completed + left

    def _privacy_state(self) -> dict[str, Any] | None:
        """Return what a checkpoint keeps of the level `dp`."""
        return None if self._private is None else self._private.state()

    # --- canaries

    def _plant(self, loader: Any, secret: str | None, distributed: Any) -> Any:
        """Return a loader of the training data with the policy's canaries in it, if it has any; all ranks call it.

        Args:
            loader: What the trial has built, which stays as it is.
            secret: With which the trial began, in hex; None if it begins now.
            distributed: The ranks.

        Raises:
            GovernanceError: CANARY.
        """
        if self._governed is None or self._governed.plan.policy.canaries is None:
            return loader
        if not isinstance(loader, DataLoader):
            message = "canaries are planted in the data of a detlab.pytorch.DataLoader, and the trial built another"
            raise GovernanceError.of("CANARY", f"{message}; detlab.pytorch.governance.Canaries plants them elsewhere")
        policy = self._governed.plan.policy
        given = Canaries(policy, None if secret is None else bytes.fromhex(secret)).secret
        self._canaries = Canaries(policy, distributed.broadcast(given))
        planted = copy.copy(loader)
        planted.dataset = self._canaries.plant(loader.dataset)
        self._canary_loader = planted
        if self._recorder is not None:
            self._recorder.canaries = self._canaries.commitment
        return planted

    def _canary_secret(self) -> str | None:
        """Return what a checkpoint keeps, so that the trial goes on with the same canaries."""
        return None if self._canaries is None else self._canaries.secret.hex()

    def _memorisation(self, trial: Any, distributed: Any, *, moves: bool) -> dict[str, Any]:
        """Return the `gov/` metrics of canaries, if there are any; all ranks call it, with models in evaluation mode.

        Raises:
            GovernanceError: CANARY, SCALAR.
        """
        if self._canaries is None:
            return {}
        canaries, collate = self._canaries, self._canary_loader.collate_fn

        def losses(samples: Sequence[Any]) -> list[float]:
            batch = collate(list(samples))
            assert self._governed is not None  # `_plant` has looked
            with self._governed.serving(canaries.measuring):
                return self._read_losses(trial, to_device(batch, self.device) if moves else batch, len(samples))

        size = self._canary_loader.batch_size or 64
        report: dict[str, Any] = {}
        refused: list[Refusal] = []
        try:
            report = canaries.measure(losses, batch_size=size)
            samples = canaries.samples[:MOST_SAMPLES]
            with LayerSpread(self.models) as spread:
                for start in range(0, len(samples), size):
                    losses(samples[start : start + size])
            report["gov/spread"] = spread.report()
        except GovernanceError as error:
            refused = error.refusals
        report, refused = distributed.broadcast((report, refused))  # ranks may differ in the last bit
        if refused:
            raise GovernanceError(refused, "memorisation cannot be measured:")
        return report

    def _read_losses(self, trial: Any, batch: Any, count: int) -> list[float]:
        """Return the losses that `train_batch` gives to `context.backward` for a batch; nothing is trained on it.

        The trial is left there, by an exception that no `except Exception` takes: what comes behind does not happen.
        """
        before, self._sample_ids, self._reads_losses = self._sample_ids, None, True
        try:
            with torch.no_grad(), forked_rng(0):
                trial.train_batch(batch=batch, epoch_idx=0, batch_idx=0)
        except LossesRead as found:
            return numbers_of(found.losses, count)
        finally:
            self._sample_ids, self._reads_losses = before, False
        raise GovernanceError.of("CANARY", "train_batch() did not call context.backward(losses), so they are unknown")

    # --- profiles

    def _probing(self) -> contextlib.AbstractContextManager[None]:
        """Take a probe of each model in a validation, if the policy asks for profiles and there is none yet."""
        return contextlib.nullcontext() if self._probes is None else self._probes.watching(self.models)

    def _profiled(self, distributed: Any) -> dict[str, Any]:
        """Return the `gov/` metrics of profiles, if the policy asks for them; all ranks call it, for the chief's."""
        if self._probes is None:
            return {}
        found: dict[str, Any] = distributed.broadcast(self._probes.report(self.models) if distributed.rank == 0 else {})
        return found

    @property
    def _wants_probe(self) -> bool:
        """Whether a checkpoint is to have profiles, and nothing was validated yet."""
        return self._probes is not None and not self._probes.looked

    def _probe_state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of probes; nothing if the policy asks for no profiles."""
        return {} if self._probes is None else {PROBES: self._probes.state()}

    def _profile_problems(
        self, metadata: Mapping[str, Any], kept: Any, states: Sequence[Mapping[str, Any]]
    ) -> list[Refusal]:
        """Return PROFILE for a checkpoint whose weights are not those that were measured."""
        segment = metadata.get(METADATA_KEY)
        said = segment.get("profile") if isinstance(segment, Mapping) else None
        if said is None:
            return []
        return problems_of(RecordedProfile.model_validate(said), kept, self.models, states)

    def _governed_segment(self, distributed: Any, step: int, saved: Sequence[str]) -> dict[str, Any] | None:
        """Return what was trained since the last checkpoint, on the chief; all ranks call it when one is taken."""
        if self._recorder is None or self._governed is None:
            return None
        counts = self._governed.meter.counts
        orders = distributed.gather(self._recorder.take_orders())
        segment = None if orders is None else self._recorder.segment(step, counts, orders, saved, self.device)
        if segment is not None and self._private is not None:
            segment["privacy"] = self._private.spent().model_dump(mode="json")
        if segment is not None and self._probes is not None:
            segment["profile"] = self._probes.record(self.models)
        self._recorder.taken(step, counts)
        return segment

    def _refuse_checkpoint(self, found: Sequence[Refusal], uuid: str) -> None:
        """Raise, or under `enforce: audit` log and count, why training may not go on from a checkpoint."""
        if found and self._governed is not None:
            self._governed.refuse(found, f"training may not go on from checkpoint {uuid}:")


def missing_state(tree: Mapping[str, Any], context: Any) -> list[Refusal]:
    """Return STATE for what a checkpoint of the same trial lacks to be continued bit by bit."""
    lacks = []
    if len(tree.get("optimizers_state_dict") or []) != len(context.optimizers):
        lacks.append("the state of its optimizers")
    if len(tree.get("lr_schedulers_state_dict") or []) != len(context.lr_schedulers):
        lacks.append("the state of its schedulers")
    listed = tree.get("ranks") or []
    if not listed or any(not isinstance(one, Mapping) or one.get("rng") is None for one in listed):
        lacks.append("the states of its random number generators")
    if context._private is not None and not (tree.get("trial_state") or {}).get("privacy"):
        lacks.append("what its privacy accountant has counted")
    if not (tree.get("trial_state") or {}).get("stream"):
        lacks.append("the place in its data")
    return [Refusal("STATE", f"the checkpoint has not {what}") for what in lacks]
