"""Deterministic simulation of a whole cluster: see README.md."""
