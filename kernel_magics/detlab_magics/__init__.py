"""Notebook magics of detlab: `%load_ext detlab_magics`, then `%det` lists them."""

from typing import Any


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics. Nothing is asked of the network."""
    from detlab_magics.experimentmagics import ExperimentMagics
    from detlab_magics.governancemagics import GovernanceMagics
    from detlab_magics.magics import DetMagics
    from detlab_magics.taskmagics import TaskMagics

    magics = DetMagics(ipython)
    ipython.register_magics(magics)
    ipython.register_magics(ExperimentMagics(ipython, magics.session))
    ipython.register_magics(TaskMagics(ipython, magics.session))
    ipython.register_magics(GovernanceMagics(ipython, magics.session))
    magics.install()


def unload_ipython_extension(ipython: Any) -> None:
    """Make captured cells unimportable again; the magics stay known to IPython until the kernel ends."""
    magics = ipython.magics_manager.registry.get("DetMagics")
    if magics is not None:
        magics.uninstall()
