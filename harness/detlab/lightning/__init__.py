"""Lightning's `Trainer` in a trial: `DetLogger` reports, `DetCheckpointCallback` stores, stops and resumes.

    with det.core.init() as core_context:
        callback = detlab.lightning.DetCheckpointCallback(core_context)
        trainer = lightning.Trainer(
            max_epochs=10, logger=detlab.lightning.DetLogger(core_context), callbacks=[callback]
        )
        trainer.fit(model, data, ckpt_path=callback.ckpt_path)

Needs the extra `lightning`.
"""

from detlab.frameworks.versions import require

VERSION = require("lightning", extra="lightning", at_least="2.6", below="3")
"""Of the lightning that is installed."""

from detlab.lightning.callback import DetCheckpointCallback  # noqa: E402  # the version is checked first
from detlab.lightning.logger import DetLogger  # noqa: E402  # likewise

__all__ = ["DetCheckpointCallback", "DetLogger"]
