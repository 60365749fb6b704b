"""Parallelism of one trial over devices and ranks: process groups, wrapped models, gradients, AMP, the hang watchdog.

Which batch a rank gets is in `data`; no checkpoint and no metric is made here.
"""
