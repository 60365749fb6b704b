"""`core_context.experimental`: calls that Determined marks as experimental."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger("detlab.core")


class ExperimentalCoreContext:
    """Accepts Determined's calls and says what is not recorded yet."""

    def report_task_using_checkpoint(self, checkpoint: Any) -> None:
        """Warn that the link from this trial to `checkpoint` is not recorded in this release."""
        logger.warning("report_task_using_checkpoint(): lineage is not recorded in this release")

    def report_task_using_model_version(self, model_version: Any) -> None:
        """Warn that the link from this trial to `model_version` is not recorded in this release."""
        logger.warning("report_task_using_model_version(): lineage is not recorded in this release")
