"""Queries per resource: plain functions of a `Session`, to be run by `Store.write` and `Store.read`."""
