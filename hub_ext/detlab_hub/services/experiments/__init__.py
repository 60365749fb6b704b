"""Experiments and trials for their owners: submit, list, share, code, timeline, delete.

Their states change in `lifecycle`; their tasks' reports arrive through `ingest`.
"""
