"""Queries on schedules. When one fires, and what follows, is decided in the services."""
