"""Programs inside user tasks: a borrowed cell, a whole notebook, the writer behind a TensorBoard.

Each is a module to be started with `python -m`. Beside the standard library they import what the task itself is about
(NumPy, pandas, torch, papermill, tensorboard), and only when it is needed: the launcher above them imports none of it.
"""
