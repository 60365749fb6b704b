"""Output for people: pages, filters, retention; users' patterns are matched in a process of their own.

Taking lines in is `ingest`; how lines are stored is `store.queries.logs`; secrets are masked in `kernel.masking`.
"""
