"""Keras 3 on torch in a trial: `DeterminedCallback`, with the name and signature of Determined 0.38.

    with det.core.init() as core_context:
        info = det.get_cluster_info()
        callback = detlab.keras.DeterminedCallback(
            core_context,
            checkpoint=info.latest_checkpoint if info else None,
            continue_id=info.trial.trial_id if info else "local",
        )
        model.fit(x, y, validation_data=(vx, vy), epochs=10, callbacks=[callback])

Needs the extra `keras`, and `KERAS_BACKEND=torch` in the environment before Keras is imported.
"""

from detlab.frameworks.errors import FrameworkVersionError
from detlab.frameworks.versions import require

VERSION = require("keras", extra="keras", at_least="3.12", below="4")
"""Of the Keras that is installed."""

try:
    from detlab.keras.callback import DeterminedCallback
except ModuleNotFoundError as error:
    if error.name not in {"tensorflow", "jax"}:
        raise
    raise FrameworkVersionError(
        f"Keras runs on {error.name}, which is not installed",
        hint="Set KERAS_BACKEND=torch in the environment, or in os.environ before the first `import keras`",
    ) from None

__all__ = ["DeterminedCallback"]
