"""Queries about what is stored and for how long: what collection decides about, what waits in the trash, freed bytes.

Never here: files. Queries of single checkpoints are in `store.queries.checkpoints`.
"""
