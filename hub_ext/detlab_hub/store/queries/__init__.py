"""Queries per resource: plain functions of a `Session`."""
