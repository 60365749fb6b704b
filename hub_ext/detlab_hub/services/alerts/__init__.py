"""Alerts by rules: the rules of users are evaluated here, and alerts, rules, webhooks and addresses changed.

Not here: who is told how (`notify`), the arithmetic of rules (`core.alerts`), what code says (`ingest`, `tracking`).
"""
