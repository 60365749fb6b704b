"""Hugging Face's `transformers.Trainer` in a trial: `DetCallback`, with the name and signature of Determined 0.38.

    args = detlab.transformers.training_arguments(output_dir="out", eval_strategy="epoch")
    with det.core.init() as core_context:
        callback = detlab.transformers.DetCallback(core_context, args)
        trainer = transformers.Trainer(model, args, callbacks=[callback], ...)
        trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)

Needs the extra `transformers`.
"""

from detlab.frameworks.versions import require

VERSION = require("transformers", extra="transformers", at_least="5.0", below="6")
"""Of the transformers that is installed."""

from detlab.transformers.arguments import training_arguments  # noqa: E402  # the version is checked first
from detlab.transformers.callback import DetCallback  # noqa: E402  # likewise

__all__ = ["DetCallback", "training_arguments"]
