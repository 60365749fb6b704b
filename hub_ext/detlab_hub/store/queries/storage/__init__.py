"""Queries about what is stored, for how long and by whom: what collection decides about, the trash, freed bytes, sums.

Never here: files. Queries of single checkpoints are in `store.queries.checkpoints`.
"""
