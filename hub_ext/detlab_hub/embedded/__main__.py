"""The supervisor as a separate process: `python -m detlab_hub.embedded DIR`, started by `det up`."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

from detlab.errors import DetlabError
from detlab.pasted import word
from detlab_hub.embedded.parts import make_parts
from detlab_hub.embedded.sockets.listeners import Listeners, inherited
from detlab_hub.embedded.state import StateFolder
from detlab_hub.embedded.supervisor import Supervisor


async def supervise(folder: StateFolder) -> None:
    """Run the cluster of a state folder until SIGTERM or SIGINT.

    Raises:
        DetlabError: The folder has no plan, or another supervisor runs it.
    """
    plan = folder.read_plan()
    if plan is None:
        raise DetlabError(f"{folder.plan_file} is missing", hint=f"det up --dir {word(folder)}")
    supervisor = Supervisor(folder, plan, make_parts(folder, plan), Listeners(inherited()))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, supervisor.request_stop)
    await supervisor.run()


def main() -> int:
    """Run the supervisor; the log goes to stderr, which `det up` redirects to `logs/supervisor.log`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        asyncio.run(supervise(StateFolder(Path(sys.argv[1]))))
    except DetlabError as error:
        logging.error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
