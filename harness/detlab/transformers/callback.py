"""`DetCallback`: reports, checkpoints, preemption and resuming of a `transformers.Trainer`."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import transformers
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from detlab import core
from detlab.frameworks.errors import FrameworkError
from detlab.frameworks.trial import TRAINING, VALIDATION, TrialControl, counts

logger = logging.getLogger("detlab.transformers")

USER_DATA = "my_data.json"
"""File of a checkpoint with the caller's `user_data`; Determined's name."""
LENGTH_SETTING = "TrainingArguments(max_steps=…) or (num_train_epochs=…)"


class DetCallback(transformers.TrainerCallback):
    """Connects a `transformers.Trainer` with its trial.

    What the Trainer logs is reported; what it saves is stored as a checkpoint of the trial, in its own format. When the
    trial is to stop (a pause, a stop by the searcher, another trial's turn), the Trainer saves after the step, and the
    process ends. A later attempt gets that checkpoint into `args.output_dir` and its path into
    `args.resume_from_checkpoint`, for `trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)`.

    All ranks make one. Off-cluster reports are logged and nothing is resumed.

    Args:
        core_context: What `core.init()` gave; with several processes made with
            `distributed=DistributedContext.from_torch_distributed()`.
        args: The Trainer's arguments; `resume_from_checkpoint` is set here.
        filter_metrics: Report only metrics whose names contain one of these; all of them if None. What the searcher
            reads is always reported.
        user_data: Stored as `my_data.json` with each checkpoint.

    Raises:
        FrameworkError: `args` are of another type, or the Trainer's processes are not those of `core_context`.
        CheckpointError: The checkpoint to resume from cannot be read.
    """

    def __init__(
        self,
        core_context: core.Context,
        args: transformers.TrainingArguments,
        filter_metrics: Sequence[str] | None = None,
        user_data: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(args, transformers.TrainingArguments):
            raise FrameworkError(f"args must be the Trainer's TrainingArguments, not {args!r:.200}")
        self.core_context = core_context
        self.filter_metrics = filter_metrics
        self.user_data = user_data
        self._trial = TrialControl(core_context)
        self._check_processes(args)
        self._warn_of_arguments(args)
        self._must_resume = False
        self._training = False
        self._reported: dict[str, int] = {}
        self._pending: dict[str, Any] = {}
        self._saved_at: int | None = None
        self.load_last_checkpoint(args)

    def _warn_of_arguments(self, args: transformers.TrainingArguments) -> None:
        if args.save_only_model:
            logger.warning("save_only_model: a trial that was stopped goes on with a new optimizer and schedule")
        compared = sorted(name for name in self._trial.searched_names if name.startswith("eval_"))
        if compared and args.eval_strategy == "no":
            logger.warning("the search compares %s, and with eval_strategy='no' training has none", compared[0])
        if args.load_best_model_at_end:
            logger.warning("load_best_model_at_end: the best of this attempt is loaded, not that of earlier ones")

    def _check_processes(self, args: transformers.TrainingArguments) -> None:
        ranks = self._trial.distributed.size
        if args.world_size != ranks:
            raise FrameworkError(
                f"the Trainer has {args.world_size} processes, and core_context {ranks}",
                hint="Start with `python3 -m detlab.launch.torch_distributed SCRIPT`, and make the context by"
                " det.core.init(distributed=det.core.DistributedContext.from_torch_distributed()). Without a GPU"
                " add TrainingArguments(use_cpu=True).",
            )

    # --- resuming

    def load_last_checkpoint(self, args: transformers.TrainingArguments) -> None:
        """Copy the trial's latest checkpoint into `args.output_dir` and set `args.resume_from_checkpoint`.

        Raises:
            FrameworkError: The checkpoint is not one of a Trainer.
            CheckpointError: It cannot be read.
        """
        uuid = self._trial.latest_checkpoint
        if uuid is None:
            return
        if getattr(args, "overwrite_output_dir", False):  # an argument of transformers 4
            logger.info("not resumed from checkpoint %s: overwrite_output_dir is set", uuid)
            return
        step = int(self.core_context.checkpoint.get_metadata(uuid)["steps_completed"])
        self.core_context.checkpoint.download(uuid, str(args.output_dir))
        path = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{step}"
        if not (path / "trainer_state.json").is_file():
            raise FrameworkError(
                f"checkpoint {uuid} has no {path.name}/trainer_state.json: no Trainer of transformers wrote it"
            )
        args.resume_from_checkpoint = str(path)
        self._trial.resumed_at, self._must_resume = step, True
        logger.info("checkpoint %s is in %s", uuid, path)

    def on_train_begin(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        model: Any = None,
        **_: Any,
    ) -> None:
        """Check that training resumes where it should, and trains for as long as the search."""
        if self._must_resume and state.global_step != self._trial.resumed_at:
            raise FrameworkError(
                f"this attempt of the trial is to resume at step {self._trial.resumed_at}, and the Trainer begins at"
                f" {state.global_step}",
                hint="Make DetCallback first, then call"
                " trainer.train(resume_from_checkpoint=args.resume_from_checkpoint).",
            )
        if self._must_resume and isinstance(model, transformers.PreTrainedModel):
            load_renamed(model, Path(str(args.resume_from_checkpoint)))
        by_steps = args.max_steps > 0
        self._trial.check_length(
            batches=args.max_steps if by_steps else None,
            epochs=None if by_steps else args.num_train_epochs,
            setting=LENGTH_SETTING,
        )
        self._must_resume = False  # a second call of train() begins where it likes
        self._training = True
        self._trial.set_status("training")

    # --- reports

    def on_log(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Report what the Trainer logs, once for each group and step."""
        group = metric_group(logs or {})
        if group is None or not logs:
            return
        if group == VALIDATION and self._training:
            self._pending.update(logs)  # an evaluation of several data sets logs each
            return
        self._flush(state)
        if group == VALIDATION:
            self._pending.update(logs)
            self._flush(state)
        else:
            self._report(group, state, logs)

    def _flush(self, state: transformers.TrainerState) -> None:
        """Report an evaluation, now that all of its data sets have been logged."""
        if self._pending:
            logs, self._pending = self._pending, {}
            self._report(VALIDATION, state, logs)

    def _report(self, group: str, state: transformers.TrainerState, logs: Mapping[str, Any]) -> None:
        step, epochs = state.global_step, state.epoch or 0.0
        if group == VALIDATION:
            self._trial.report_validation(step, self._chosen(logs), epochs)
            return
        if self._reported.get(group) == step:
            return
        self._reported[group] = step
        self._trial.report(group, step, {**self._chosen(logs), **counts(step, epochs)})

    def _chosen(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        if not self.filter_metrics:
            return dict(logs)
        wanted, searched = self.filter_metrics, self._trial.searched_names
        return {name: value for name, value in logs.items() if name in searched or any(part in name for part in wanted)}

    def on_step_begin(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **_: Any,
    ) -> None:
        """Report the evaluation before this step, if there was one."""
        if self._pending:
            self._flush(state)

    # --- stops

    def on_step_end(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **_: Any,
    ) -> None:
        """Report progress; have the Trainer save and stop, if the trial is to."""
        if state.max_steps > 0:
            self._trial.report_progress(state.global_step / state.max_steps)
        if self._trial.should_stop(state.global_step):
            # An evaluation that is due at this very step is still done: the next attempt begins after it.
            control.should_save = True
            control.should_training_stop = True

    def on_epoch_end(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **_: Any,
    ) -> None:
        """Keep the Trainer from doing what it does at the end of an epoch, when it leaves before that."""
        self._flush(state)
        if not self._trial.stopping:
            return
        unsaved = self._saved_at != state.global_step  # save_strategy="best" saves only the best
        control.should_save = unsaved
        if unsaved or state.epoch is None or state.epoch % 1:
            control.should_evaluate = control.should_log = False

    def on_save(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **_: Any,
    ) -> None:
        """Store what the Trainer has saved; all ranks do, each its own files."""
        self._flush(state)
        folder = f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        path = Path(str(args.output_dir)) / folder
        if self._trial.chief and self.user_data is not None:
            (path / USER_DATA).write_text(json.dumps(self.user_data), encoding="utf-8")
        metadata: dict[str, Any] = {
            "steps_completed": state.global_step,
            "framework": f"transformers-{transformers.__version__}",
            "format": "transformers",
        }
        if self._trial.trial_id is not None:
            metadata["trial_id"] = self._trial.trial_id
        self.core_context.checkpoint.upload(
            os.fspath(path.parent) if path.is_dir() else None,
            metadata=metadata,
            shard=True,
            selector=lambda name: name.startswith(f"{folder}/"),
        )
        self._saved_at = state.global_step

    def on_train_end(
        self,
        args: transformers.TrainingArguments,
        state: transformers.TrainerState,
        control: transformers.TrainerControl,
        **_: Any,
    ) -> None:
        """End the process, if the trial is to stop before its end.

        Raises:
            SystemExit: With code 0, after the checkpoint is stored.
        """
        self._flush(state)
        self._training = False
        if self._trial.stopping and state.global_step < state.max_steps:
            self._trial.leave()


def metric_group(logs: Mapping[str, Any]) -> str | None:
    """Return the group that a Trainer's logs belong to; None for the summary after training.

    Args:
        logs: Names and values; the Trainer marks what it has evaluated by `eval_` and `test_`.
    """
    if any(name.startswith("eval_") for name in logs):
        return VALIDATION
    if any(name.startswith("test_") for name in logs):
        return "test"
    if "train_runtime" in logs and "loss" not in logs:
        return None
    return TRAINING


def load_renamed(model: transformers.PreTrainedModel, path: Path) -> None:
    """Load weights that have other names in a checkpoint than in memory, which the Trainer passes over when it resumes.

    Seen with transformers 5.24: `save_pretrained` writes the names of earlier releases, `from_pretrained` knows them,
    and the Trainer reads the file as it is, with a warning.

    Args:
        model: As the Trainer has loaded it; its parameters stay the same objects.
        path: The folder that the Trainer has saved.
    """
    weights = path / "model.safetensors"
    if not weights.is_file():
        return
    with safetensors.safe_open(weights, framework="pt") as file:
        unknown = set(file.keys()) - set(model.state_dict())
    if unknown:
        logger.info("%d weights have other names in the checkpoint: they are loaded by from_pretrained", len(unknown))
        model.load_state_dict(type(model).from_pretrained(path).state_dict())
