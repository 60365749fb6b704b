"""The page of the trainer, from signatures, docstrings and what no signature says."""

from __future__ import annotations

import re

from reference_pages.docstrings import attributes_of, class_section, doc_of, function_section, signature
from reference_pages.markdown import first_sentence, page, table

CHECKPOINT = """
A checkpoint is a folder; its manifest of digests comes last, and a folder without one is no checkpoint.

{files}

The first three hold the state, a tree with these keys. `on_checkpoint_save_start` may add its own, and
`on_checkpoint_load_start` sees them.

{keys}

A value of a class that is not Python's, NumPy's or PyTorch's is pickled as the last resort, with a warning that names
the class; resuming a trial unpickles it. Starting from another trial's checkpoint is refused if it holds such a value
unless the trial's environment has `DETLAB_UNPICKLE_CHECKPOINTS=1`, and `load_trial_from_checkpoint_path`
reads the weights only. `previous` names up to {kept}
earlier checkpoints of the trial, newest first: if files of one do not verify, the trial resumes from the newest that
does. A checkpoint of another model is refused with every name and shape that differs, before anything is loaded.
"""
CHECKPOINT_FILES: list[tuple[str, ...]] = [
    (
        "`model_<i>.safetensors`",
        "parameters and buffers of the i-th wrapped model under the names of its own class, without `module.` of DDP "
        "and `_orig_mod.` of `torch.compile`",
    ),
    ("`trainer.safetensors`", "all other tensors: of optimizers, callbacks, random number generators"),
    ("`trainer.json`", "what is no tensor, and which tensor belongs where"),
    ("`load_data.json`", "the trial's class, hyperparameters and experiment config"),
    (
        "`code/`",
        "source files of the working directory (`.py`, `.yaml`, `.json`, `.toml`, `.txt`, `.cfg`), 1 MiB each and "
        "10 MiB together at most",
    ),
    (
        "`metadata.json`",
        "`steps_completed`, `epochs_completed`, `world_size`, `framework`, `format`, `detlab_version`, `previous`",
    ),
]
CHECKPOINT_KEYS: list[tuple[str, ...]] = [
    (
        "`models_state_dict`, `optimizers_state_dict`, `lr_schedulers_state_dict`",
        "one item each, in the order of wrapping",
    ),
    ("`scaler_state_dict`", "of the gradient scaler, or None"),
    ("`callbacks`", "by name, what `state_dict` returned on the chief"),
    ("`ranks`", "for each rank, states of its random number generators and, within an aggregation, its gradients"),
    ("`trial_state`", "batches and epochs trained, place in the data, number of ranks, best validation"),
]
ENVIRONMENT = """
The trainer has no variables of its own. Ranks come from those of torchrun (`RANK`, `WORLD_SIZE`, `LOCAL_RANK`,
`LOCAL_WORLD_SIZE`, `GROUP_RANK`, `GROUP_WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`), which
`detlab.launch.torch_distributed` sets; the trial comes from `DET_TASK_DIR`, which the agent sets. Tensors on GPUs are
exchanged over NCCL, others over gloo ([not tried on a GPU](../contributing/try-on-a-gpu.md)). On a cluster there must
be as many processes as slots. `kill -USR1` prints the stacks of all threads. What the trainer has to say goes to the
logger `detlab.pytorch`, off-cluster reports to `detlab.core`; `logging.basicConfig(level=logging.INFO,
format=det.LOG_FORMAT)` shows both.
"""
DIFFERENCES: list[tuple[str, ...]] = [
    (
        "`latest_checkpoint=None` on a cluster",
        "starts anew, with a warning",
        "resumes from the trial's own latest; `False` starts anew",
    ),
    (
        '`checkpoint_policy="best"` in a local run',
        "becomes `all`",
        "works, if `exp_conf` names the `metric` of the `searcher`",
    ),
    (
        "content of checkpoints",
        "pickles; random states of the chief",
        "safetensors and JSON; random states of every rank. Determined's can be loaded",
    ),
    (
        "saving",
        "the loop waits for the upload",
        "the loop waits for a copy. `on_checkpoint_write_end` comes at the next control point (about a second), "
        "`on_checkpoint_upload_end` at one after it",
    ),
    (
        "the end of an epoch on several ranks",
        "the data is repeated and then dealt out: ranks pass it at different batches",
        "all ranks take the same number of steps; the last batches are pooled and dealt out evenly",
    ),
    (
        "another number of processes on resume",
        "the place in the data is a number of batches per rank",
        "no sample of the epoch is skipped or used twice",
    ),
    (
        "`STEP_EVERY_OPTIMIZER_STEP` with a `frequency`",
        "counts batches",
        "counts steps of the scheduler's own optimizer",
    ),
    (
        "metrics that are None, text, lists or dicts",
        "averaged to `None` in training, an error in validation",
        "kept out of means, with one warning for each name (none for `None`); `on_training_workload_end` gets them "
        "with the single batches",
    ),
    ("metrics that are tensors", "copied to the host in every batch", "copied to the host when a report is due"),
    ("a callback that raises", "a traceback", "and its name, the hook, the rank and the batch"),
    (
        "a rank that hangs",
        "the others wait",
        "on a cluster it is named after `hang_timeout` seconds; the attempt ends, the trial restarts",
    ),
    ("`configure_apex_amp`", "NVIDIA's apex", "refused; `experimental.use_amp()` is there"),
]


def pytorch() -> str:
    """The page of the trainer, from signatures and docstrings."""
    from detlab import pytorch as trainer
    from detlab.errors import CheckpointError
    from detlab.pytorch import experimental
    from detlab.pytorch.callback import HOOKS, CallbackFailed
    from detlab.pytorch.checkpoint.files import StateMismatch
    from detlab.pytorch.checkpoint.manager import KEPT_NAMES
    from detlab.pytorch.checkpoint.writer import CheckpointWriteFailed
    from detlab.pytorch.context.experimental import PyTorchExperimentalContext
    from detlab.pytorch.data.loader import DataError
    from detlab.pytorch.errors import TrainerError

    intro = """
`from detlab import pytorch`. The names and signatures are those of Determined 0.38; what is there in detlab only has a
default and comes after them. [Port your PyTorch loop](../how-to/port-your-pytorch-loop.md) shows them at work,
[examples/digits_trial](../../examples/digits_trial/README.md) is a whole trial.

A *batch* is one call of `train_batch` on each rank; `steps_completed` counts batches. The *chief* is rank 0.
"""
    errors = [TrainerError, DataError, CallbackFailed, StateMismatch, CheckpointWriteFailed, CheckpointError]
    units = """
`pytorch.Batch(100)` counts batches, `pytorch.Epoch(1)` passes over the training data. As a period each may also hold a
container: `pytorch.Batch([10, 50])` is due after 10 and after 50 batches.
"""
    checkpoint = CHECKPOINT.format(
        files=table(("file", "holds"), CHECKPOINT_FILES), keys=table(("key", "holds"), CHECKPOINT_KEYS), kept=KEPT_NAMES
    )
    reducers = ", ".join(f"`{member}`" for member in trainer.Reducer.__members__)
    return page(
        "PyTorchTrial and Trainer",
        intro,
        function_section("pytorch.init", trainer.init),
        function_section("trainer.fit", trainer.Trainer.fit).replace(
            "    trainer.fit", "    trainer = pytorch.Trainer(trial, context)\n    trainer.fit", 1
        ),
        f"## Batch, Epoch\n\n{units.strip()}",
        class_section("PyTorchTrial", trainer.PyTorchTrial),
        class_section("PyTorchTrialContext", trainer.PyTorchTrialContext, inherited=True),
        class_section("context.experimental", PyTorchExperimentalContext),
        callback_section(trainer.PyTorchCallback, HOOKS),
        "## LRScheduler.StepMode\n\n"
        + table(("mode", "when `scheduler.step()` is called"), attributes_of(trainer.LRScheduler.StepMode)),
        f"## DataLoader\n\n    DataLoader{signature(trainer.DataLoader)}\n\n{doc_of(trainer.DataLoader)}",
        f"## Reducer\n\n{reducers}. {doc_of(trainer.Reducer)}",
        class_section("MetricReducer", trainer.MetricReducer),
        f"## Checkpoints\n\n{checkpoint.strip()}",
        function_section("load_trial_from_checkpoint_path", trainer.load_trial_from_checkpoint_path),
        function_section("torch_batch_process", experimental.torch_batch_process)
        + "\n\nIt is in `detlab.pytorch.experimental`, as are these classes."
        + " [Run batch inference](../how-to/run-batch-inference.md) shows them at work.",
        class_section("TorchBatchProcessor", experimental.TorchBatchProcessor),
        class_section("TorchBatchProcessorContext", experimental.TorchBatchProcessorContext, inherited=True),
        f"## Environment\n\n{ENVIRONMENT.strip()}",
        "## Errors\n\n" + table(("error", ""), [(f"`{e.__name__}`", first_sentence(e.__doc__)) for e in errors]),
        "## What differs from Determined\n\n" + table(("", "Determined 0.38", "detlab"), DIFFERENCES),
    )


def callback_section(cls: type, hooks: tuple[str, ...]) -> str:
    """The hooks of callbacks: what each gets, when it is called and where."""
    rows = []
    for name in hooks:
        hook = vars(cls)[name]
        doc = " ".join((hook.__doc__ or "").split())
        where = "chief" if re.search(r"\bchief alone\b", doc, re.IGNORECASE) else "every rank"
        rows.append((f"`{name}{signature(hook)}`", first_sentence(hook.__doc__), where))
    return f"## Callbacks\n\n{doc_of(cls)}\n\n{table(('hook', 'when, or what', 'where'), rows)}"
