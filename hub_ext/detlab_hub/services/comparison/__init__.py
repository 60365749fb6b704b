"""Runs side by side: what trials and experiments have in common, and what not.

Here live the comparison of runs and that of their code, which versions of models share. What a run is, and what a
version of a model is, never: that is of `views` and `registry`.
"""
