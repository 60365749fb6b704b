"""`torch_batch_process`: batch inference, sharded over ranks, resumed at the batch."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.utils.data

from detlab import core
from detlab.core.preemption.agreeing import StopAgreement
from detlab.info import ClusterInfo, get_cluster_info
from detlab.pytorch.errors import DataError, TrainerError
from detlab.pytorch.experimental.outputs import RankOutputs
from detlab.pytorch.experimental.processor import TorchBatchProcessor, TorchBatchProcessorContext
from detlab.pytorch.experimental.progress import ProgressStore, RunProgress
from detlab.pytorch.experimental.shards import ShardPlan, count_batches
from detlab.pytorch.metrics.reducer import _SimpleReducer, to_cpu
from detlab.pytorch.parallel import process_group

logger = logging.getLogger("detlab.pytorch")

PATIENCE = 1800.0
"""Seconds that ranks wait for each other; the same as the trainer's."""
REPORT_SECONDS = 1.0
"""Between two reports of progress."""
_OURS = {
    "batch_sampler": "batches are dealt to the ranks in the order of the dataset",
    "sampler": "batches are dealt to the ranks in the order of the dataset",
    "drop_last": "every sample is processed",
}


@dataclass(frozen=True)
class BatchSettings:
    """The arguments of `torch_batch_process`, checked.

    Attributes:
        processor: The class.
        dataset: Has `__len__` and `__getitem__`.
        batch_size: Samples of a batch.
        max_batches: The most that each rank processes; None for all.
        checkpoint_interval: Batches of each rank between checkpoints.
        options: Of torch's DataLoader.
    """

    processor: type[TorchBatchProcessor]
    dataset: Any
    batch_size: int
    max_batches: int | None
    checkpoint_interval: int
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def check(
        cls, processor: Any, dataset: Any, batch_size: Any, max_batches: Any, interval: Any, options: Any
    ) -> BatchSettings:
        """Return the settings.

        Raises:
            TrainerError: Arguments are invalid; all mistakes are listed.
        """
        problems = []
        if not (isinstance(processor, type) and issubclass(processor, TorchBatchProcessor)):
            problems.append(f"batch_processor_cls must be a class derived from TorchBatchProcessor, not {processor!r}")
        iterable = isinstance(dataset, torch.utils.data.IterableDataset)
        if iterable or not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            problems.append(
                f"dataset must have __len__() and __getitem__(), not be a {type(dataset).__name__}: "
                "its samples are dealt to the ranks by their index"
            )
        problems += _options_problems(options)
        rest = dict(options) if isinstance(options, Mapping) else {}
        within = rest.pop("batch_size", None)
        if batch_size is not None and within is not None:
            problems.append("batch_size is given twice: as an argument and in dataloader_kwargs")
        size = within if batch_size is None else batch_size
        size = 1 if size is None else size
        numbers = {"batch_size": size, "checkpoint_interval": interval, "max_batches": max_batches}
        problems += [
            f"{name} must be a positive integer, not {value!r}"
            for name, value in numbers.items()
            if not (name == "max_batches" and value is None) and not _is_positive(value)
        ]
        if problems:
            raise TrainerError.of("torch_batch_process() cannot start:", problems)
        rest.pop("shuffle", None)
        return cls(processor, dataset, size, max_batches, interval, rest)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _options_problems(options: Any) -> list[str]:
    if options is None:
        return []
    if not isinstance(options, Mapping):
        return [f"dataloader_kwargs must be a dict of arguments of torch's DataLoader, not {options!r:.200}"]
    problems = [f"dataloader_kwargs must not have {name!r}: {why}" for name, why in _OURS.items() if options.get(name)]
    if options.get("shuffle"):
        problems.append("dataloader_kwargs must not have 'shuffle': a resumed attempt continues in the dataset's order")
    return problems


def torch_batch_process(
    batch_processor_cls: type[TorchBatchProcessor],
    dataset: Any,
    batch_size: int | None = None,
    max_batches: int | None = None,
    checkpoint_interval: int = 5,
    dataloader_kwargs: Mapping[str, Any] | None = None,
    distributed_context: core.DistributedContext | None = None,
    *,
    checkpoint_storage: str | Mapping[str, Any] | None = None,
) -> None:
    """Process a dataset with a model: each batch by one rank, and after a pause or a failure from where it was.

    Every rank runs it, under `python3 -m detlab.launch.torch_distributed` if there are several. What the processor has
    written into `context.upload_path()` is the output: a checkpoint of the trial, which is stored with `outputs.json`
    when all batches are done. Metrics of `context.wrap_reducer` are reported then, too, as validation.

    Off-cluster the same works without resuming; checkpoints then go to a local directory.

    Args:
        batch_processor_cls: The class; one object of it is made on each rank.
        dataset: With `__len__` and `__getitem__`. It must be the same in all attempts.
        batch_size: Samples of a batch; 1 if `dataloader_kwargs` does not say it either.
        max_batches: The most that each rank processes, over all attempts.
        checkpoint_interval: Batches of each rank after which progress and new output are stored.
        dataloader_kwargs: Arguments of torch's DataLoader, such as `num_workers` and `collate_fn`.
        distributed_context: Ranks; by default from torchrun's environment.
        checkpoint_storage: As for `core.init`.

    Raises:
        TrainerError: Arguments are invalid (all mistakes are listed), or the processes do not fit the slots.
        DataError: The dataset or the size of batches differs from what an earlier attempt processed.
        CheckpointError: Progress could not be stored or restored.
    """
    settings = BatchSettings.check(
        batch_processor_cls, dataset, batch_size, max_batches, checkpoint_interval, dataloader_kwargs
    )
    info = get_cluster_info()
    info = info if info is not None and info.task_type == "TRIAL" else None
    with (
        process_group.joined(info, distributed_context, PATIENCE) as connected,
        core.init(
            distributed=connected, checkpoint_storage=checkpoint_storage, preempt_mode=core.PreemptMode.ChiefOnly
        ) as core_context,
        tempfile.TemporaryDirectory(prefix="batch-process-") as folder,
    ):
        BatchRun(settings, core_context, info, Path(folder)).run()


class BatchRun:
    """One attempt of a batch inference, on one rank.

    Args:
        settings: What to process, and with what.
        core_context: The Core API of this process.
        info: The trial; None off-cluster.
        folder: An empty folder for the output until it is stored.
    """

    def __init__(
        self, settings: BatchSettings, core_context: core.Context, info: ClusterInfo | None, folder: Path
    ) -> None:
        self._settings = settings
        self._core = core_context
        self._ranks = core_context.distributed
        self._outputs = RankOutputs(folder, self._ranks.rank, self._ranks.size)
        self._store = ProgressStore(core_context, self._outputs)
        self._agreement = StopAgreement(core_context.preempt, core_context.distributed)
        self._latest = None if info is None else info.latest_checkpoint
        self._trial = None if info is None else info.trial.trial_id
        self._config = {} if info is None else info.trial._config
        self._gpus = torch.cuda.device_count() if info is None else len(info.gpu_uuids)
        self._earlier: list[list[Any]] = []
        self._reported_at = float("-inf")

    def run(self) -> None:
        """Process what is left, and store it; return early if the trial is to stop.

        Raises as `torch_batch_process` does.
        """
        found = self._store.find(self._latest)
        source = self._source() if found is None else found.source
        if found is not None and found.trial != self._trial:
            logger.info("the progress of trial %s is not this trial's: it starts at the first batch", found.trial)
            found = None
        progress = self._begin(found, source)
        if found is not None:
            self._store.clear_up(found)
        if progress.finished:
            logger.info("all %d batches are done and stored: nothing is left to process", progress.batches)
            return
        if found is not None:
            self._earlier = self._store.restore(progress)
            logger.info("resuming after batch %d of %d", progress.done, progress.batches)
        context = TorchBatchProcessorContext(self._core, self._outputs, progress.source, self._gpus)
        processor = self._settings.processor(context)
        self._give_back_values(context)
        stopped = self._process(processor, context, progress)
        if stopped is not None:
            self._finish(processor, context, stopped)

    def _begin(self, found: RunProgress | None, source: str | None) -> RunProgress:
        settings = self._settings
        samples = len(settings.dataset)
        batches = count_batches(samples, settings.batch_size, settings.max_batches, self._ranks.size)
        asked = RunProgress(
            samples, settings.batch_size, settings.max_batches, batches, trial=self._trial, source=source
        )
        if found is None:
            return asked
        if problems := found.differences(asked):
            raise DataError.of(
                "what an earlier attempt of this trial has processed does not fit what it is to process now:",
                problems,
                hint="start a new experiment to process another dataset, or in other batches",
            )
        return found

    def _source(self) -> str | None:
        """Return the checkpoint that the experiment starts from; later attempts learn it from the progress."""
        named = (self._config.get("searcher") or {}).get("source_checkpoint_uuid")
        return str(named) if named else self._latest

    # --- reducers over attempts

    def _give_back_values(self, context: TorchBatchProcessorContext) -> None:
        """Give the values of earlier attempts back to those reducers that are lists of values."""
        for index, wrapped in enumerate(context._wrapped_reducers):
            if not isinstance(wrapped.reducer, _SimpleReducer):
                continue
            for values in self._earlier:
                wrapped.reducer.values.extend(values[index] if index < len(values) else [])

    def _values_of(self, context: TorchBatchProcessorContext) -> list[Any]:
        """Return what each reducer has seen on this rank, over all attempts: a list of values, or of reduced ones."""
        found: list[Any] = []
        for index, wrapped in enumerate(context._wrapped_reducers):
            mine = to_cpu(wrapped.call("per_slot_reduce"))
            if not isinstance(wrapped.reducer, _SimpleReducer):
                mine = [one for values in self._earlier if index < len(values) for one in values[index]] + [mine]
            found.append(mine)
        return found

    def _reduce(self, context: TorchBatchProcessorContext) -> dict[str, Any]:
        """Return the metrics of all reducers, over all ranks and attempts; all ranks call it together."""
        metrics: dict[str, Any] = {}
        by_rank = self._ranks.allgather(self._values_of(context))
        for index, wrapped in enumerate(context._wrapped_reducers):
            values = [found[index] for found in by_rank]
            if not isinstance(wrapped.reducer, _SimpleReducer):
                values = [one for parts in values for one in parts]
            metrics |= wrapped.named(wrapped.call("cross_slot_reduce", values))
        return metrics

    # --- the loop

    def _process(
        self, processor: TorchBatchProcessor, context: TorchBatchProcessorContext, progress: RunProgress
    ) -> RunProgress | None:
        """Process what is left; return how far it is then, or None if the trial is to stop and may be resumed."""
        settings, start = self._settings, progress
        plan = ShardPlan(
            progress.samples,
            progress.batch_size,
            progress.batches,
            progress.done,
            self._ranks.rank,
            self._ranks.size,
        )
        batches = iter(self._loader(plan))
        for step in range(plan.steps):
            number = plan.batch_at(step)
            if number is not None:
                context._samples = plan.samples_of(number)
                processor.process_batch(next(batches), start.steps + step)
                context._samples = None
            progress = replace(progress, done=plan.done_after(step + 1), steps=start.steps + step + 1)
            stopping = self._agreement.should_stop(progress.steps)
            last = step + 1 == plan.steps
            if not last and (stopping or (step + 1) % settings.checkpoint_interval == 0):
                processor.on_checkpoint_start()
                progress = self._store.save(progress, self._values_of(context))
            if stopping and not last:
                logger.info("stopped after batch %d of %d, to be resumed", progress.done, progress.batches)
                return None
            self._report_progress(progress)
        return progress

    def _loader(self, plan: ShardPlan) -> torch.utils.data.DataLoader[Any]:
        mine: Iterator[int | None] = map(plan.batch_at, range(plan.steps))
        wanted = [list(plan.samples_of(batch)) for batch in mine if batch is not None]
        return torch.utils.data.DataLoader(self._settings.dataset, batch_sampler=wanted, **self._settings.options)

    def _finish(
        self, processor: TorchBatchProcessor, context: TorchBatchProcessorContext, progress: RunProgress
    ) -> None:
        processor.on_checkpoint_start()
        processor.on_finish()
        metrics = self._reduce(context)
        if metrics:
            context.report_metrics("validation", progress.steps, {**metrics, "batches": progress.steps})
        done = self._store.save(replace(progress, finished=True), [])
        if self._ranks.rank == 0:
            self._core.train.report_progress(1.0)
            logger.info("all %d batches are done; the output is checkpoint %s", done.batches, done.parts[-1].uuid)

    def _report_progress(self, progress: RunProgress) -> None:
        now = time.monotonic()
        if self._ranks.rank == 0 and now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            self._core.train.report_progress(progress.done / progress.batches)
