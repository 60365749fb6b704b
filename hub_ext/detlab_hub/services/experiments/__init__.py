"""Experiments and trials as their owners see and steer them: submit, list, share, code, timeline, delete.

Their states change in `lifecycle`; what their tasks report comes in by `ingest`.
"""
