"""Callers of every kind, tenants, and processes of other users. Who may do what is the master's to say."""
