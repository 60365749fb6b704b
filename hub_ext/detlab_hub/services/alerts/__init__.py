"""Alerts by rules: the rules of users are evaluated here, and alerts, rules and webhooks read and changed.

Not here: who is told how (`notify`), the arithmetic of rules (`core.alerts`), what code says (`ingest`, `tracking`).
"""
