"""Output for users: pages, filters, retention; users' patterns are matched in a process of their own.

Lines are received in `ingest` and stored in `store.queries.logs`; failure cards that quote them are in `failures`.
"""
