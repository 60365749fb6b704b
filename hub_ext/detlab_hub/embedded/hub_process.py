"""`python -m detlab_hub.embedded.hub_process`: JupyterHub, which starts faster so.

What it imports stays: to look through it for garbage, again and again, takes a tenth of the start.
"""

from __future__ import annotations

import gc


def main() -> None:
    """Be `python -m jupyterhub`, with the same arguments."""
    gc.disable()
    from jupyterhub.app import JupyterHub

    gc.freeze()
    gc.enable()
    JupyterHub.launch_instance()


if __name__ == "__main__":
    main()
