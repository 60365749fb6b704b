"""Preloads the magics in kernels of spawned servers: their PYTHONSTARTUP names this file.

Also runs in plain Python prompts of those servers, where there is no IPython: it then does nothing. The user's own
PYTHONSTARTUP, if any, follows (named by DETLAB_CHAIN_PYTHONSTARTUP).
"""

import os as _os
import runpy as _runpy


def _preload() -> None:
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return
    shell = get_ipython()
    if shell is not None:
        shell.run_line_magic("load_ext", "detlab_magics")


_preload()
_chained = _os.environ.get("DETLAB_CHAIN_PYTHONSTARTUP")
if _chained and _os.path.exists(_chained):  # noqa: PTH110 - nothing more may be imported into the user's names
    globals().update({k: v for k, v in _runpy.run_path(_chained).items() if not k.startswith("__")})
del _preload, _chained, _os, _runpy
