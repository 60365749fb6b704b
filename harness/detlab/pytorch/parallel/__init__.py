"""Parallelism of one trial over devices and ranks: process groups, strategies, AMP.

Which batch a rank gets is in `data`; no checkpoint and no metric is made here.
"""
