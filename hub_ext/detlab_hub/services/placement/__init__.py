"""A scheduling pass, carried out: rows to snapshots, `core.scheduling`'s decision, allocations with places.

The decision itself is pure and lives in `core.scheduling`; why a job waits is answered in `queue`.
"""
