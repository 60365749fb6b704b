"""Queries on alerts, their rules and webhooks. What they mean is decided in the services."""
