"""`DeepSpeedTrialContext`: the interface between a `DeepSpeedTrial` and its trainer."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deepspeed

from detlab import core
from detlab.pytorch.context.information import TrialInformation
from detlab.pytorch.context.position import TrainingPosition
from detlab.pytorch.context.trial_context import choose_device
from detlab.pytorch.data.loader import to_device
from detlab.pytorch.deepspeed.model_parallel import ModelParallelUnit, make_data_parallel_mpu, make_deepspeed_mpu
from detlab.pytorch.errors import TrainerError
from detlab.pytorch.metrics.reducer import _PyTorchReducerContext


class DeepSpeedTrialContext(TrialInformation, TrainingPosition, _PyTorchReducerContext):
    """What a `DeepSpeedTrial` gets: registers its engines, and knows what it runs in.

    Made by `with detlab.pytorch.deepspeed.init() as context:`; the names are those of Determined 0.38.

    Args:
        core_context: The Core API of this process.
        trial_seed: Seed of the trial.
        hparams: Hyperparameters of the trial.
        slots_per_trial: Processes of the trial.
        num_gpus: GPUs of this trial on this node; 0 trains on the CPU.
        exp_conf: The experiment config.
        steps_completed: Batches trained before this process started.
        enable_tensorboard_logging: Whether the trainer writes metrics to TensorBoard.

    Attributes:
        distributed: Messages between the ranks.
        device: Where this rank trains.
        n_gpus: GPUs of this trial on this node.
        models: Wrapped engines, in order.
    """

    def __init__(
        self,
        core_context: core.Context,
        trial_seed: int | None,
        hparams: dict[str, Any] | None,
        slots_per_trial: int,
        num_gpus: int,
        exp_conf: dict[str, Any] | None,
        steps_completed: int = 0,
        enable_tensorboard_logging: bool = True,
    ) -> None:
        TrialInformation.__init__(
            self,
            core_context,
            trial_seed,
            hparams,
            slots_per_trial,
            exp_conf,
            steps_completed,
            enable_tensorboard_logging,
        )
        TrainingPosition.__init__(self)
        _PyTorchReducerContext.__init__(self, core_context.distributed.allgather)
        self.distributed = core_context.distributed
        self.n_gpus = num_gpus
        self.device = choose_device(num_gpus, self.distributed)
        self.models: list[Any] = []
        self._mpu = make_data_parallel_mpu(self.distributed)
        self._mpu_given = False
        self._manual_accumulation = False
        self._any_loader = False
        self._warned_types: set[type] = set()
        self._hang_timeout: float | None = None

    def wrap_model_engine(self, model: Any) -> Any:
        """Register an engine that `deepspeed.initialize` made, and return it.

        The first one says how large a batch is. The stages of a pipeline engine become the model parallel unit.

        Raises:
            TrainerError: It is no engine, or registered already.
        """
        if not isinstance(model, deepspeed.DeepSpeedEngine):
            raise TrainerError(
                f"wrap_model_engine() takes an engine, not a {type(model).__name__}",
                hint="engine, *_ = deepspeed.initialize(model=…, config=…) makes one: take the first of what it gives",
            )
        if any(model is other for other in self.models):
            raise TrainerError("this engine is already wrapped: wrap each engine once")
        if isinstance(model, deepspeed.PipelineEngine) and not self.models and not self._mpu_given:
            self._mpu = make_deepspeed_mpu(model.mpu)
        self.models.append(model)
        return model

    def set_mpu(self, mpu: ModelParallelUnit) -> None:
        """Set this rank's place where a model is parallel in another way than DeepSpeed's pipelines.

        Raises:
            TrainerError: No engine is wrapped yet, it was set before, or it is something else.
        """
        problems = []
        if not isinstance(mpu, ModelParallelUnit):
            problems.append(f"it must be a ModelParallelUnit, not {mpu!r:.200}")
        if not self.models:
            problems.append("wrap an engine first")
        if self._mpu_given:
            problems.append("it was set before")
        if problems:
            raise TrainerError.of("set_mpu() cannot take this model parallel unit:", problems)
        self._mpu, self._mpu_given = mpu, True

    def disable_auto_grad_accumulation(self) -> None:
        """Have `train_batch` called once for each batch: it trains on all micro-batches of it by itself."""
        self._manual_accumulation = True

    def disable_dataset_reproducibility_checks(self) -> None:
        """Accept data loaders other than detlab's: their order and their place after a pause are the trial's part."""
        self._any_loader = True

    @property
    def use_pipeline_parallel(self) -> bool:
        """Whether the first engine is a pipeline."""
        return bool(self.models) and isinstance(self.models[0], deepspeed.PipelineEngine)

    @property
    def train_micro_batch_size_per_gpu(self) -> int:
        """Samples that one rank takes at once.

        Raises:
            TrainerError: No engine is wrapped yet.
        """
        return int(self._first("train_micro_batch_size_per_gpu").train_micro_batch_size_per_gpu())

    @property
    def num_micro_batches_per_slot(self) -> int:
        """Micro-batches of one rank in one step of the optimizer: the gradient accumulation of the engine.

        Raises:
            TrainerError: No engine is wrapped yet.
        """
        return int(self._first("num_micro_batches_per_slot").gradient_accumulation_steps())

    def _first(self, what: str) -> Any:
        if not self.models:
            raise TrainerError(f"{what} is known once an engine is wrapped", hint="context.wrap_model_engine(engine)")
        return self.models[0]

    def to_device(self, data: Any) -> Any:
        """Move what a data loader gave to this rank's device; the trainer does not do so here."""
        return to_device(data, self.device, self._warned_types)

    @property
    def _calls_per_batch(self) -> int:
        """How often `train_batch` is called for one batch."""
        return 1 if self.use_pipeline_parallel or self._manual_accumulation else self.num_micro_batches_per_slot

    def _set_training(self, training: bool) -> None:
        for model in self.models:
            model.train(training)


def overwrite_deepspeed_config(
    base_ds_config: str | dict[str, Any], source_ds_dict: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a DeepSpeed config with values of another one, such as the hyperparameter `overwrite_deepspeed_args`.

    Args:
        base_ds_config: Path of a JSON file, or a dict; it stays as it is.
        source_ds_dict: What is set in it, block by block.

    Raises:
        TrainerError: The config is of another type, or the file is no JSON object.
    """
    if isinstance(base_ds_config, str):
        try:
            base = json.loads(Path(base_ds_config).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TrainerError(f"the DeepSpeed config {base_ds_config} cannot be read: {error}") from error
    else:
        base = copy.deepcopy(base_ds_config)
    if not isinstance(base, dict):
        raise TrainerError(f"a DeepSpeed config is a dict or the path of a JSON file with one, not {base!r:.200}")
    return _merged(base, source_ds_dict)


def _merged(base: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in given.items():
        inner = base.get(key)
        if isinstance(inner, dict) and isinstance(value, Mapping):
            _merged(inner, value)
        else:
            base[key] = copy.deepcopy(value)
    return base
