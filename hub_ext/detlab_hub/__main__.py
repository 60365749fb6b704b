"""`python -m detlab_hub`: run the master."""

from __future__ import annotations

import gc
import logging
import sys

from detlab.errors import DetlabError

GARBAGE = (20_000, 10, 10)
"""New objects before a collection, and collections before one of older objects."""


def main() -> int:
    """Run the master until it is asked to stop; 1 with one clear line if it cannot serve."""
    # What is imported stays: to look through it for garbage, again and again, takes a tenth of the start, and each
    # time a pause later on.
    gc.disable()
    from detlab_hub.app import DetHub

    gc.freeze()
    gc.enable()
    # Nearly all that a request makes goes by itself when it is answered. At Python's own threshold of 700 objects the
    # collector looks at a report of a thousand rows a dozen times, for a sixth of what the report costs.
    gc.set_threshold(*GARBAGE)
    app = DetHub.instance()
    try:
        app.initialize()
        app.start()
    except DetlabError as error:
        logging.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
