"""Delivery of a task's output and metrics to the master: lines, spool files, batching and sending.

The agent delivers the remaining records of a dead launcher with the same code. Only the standard library is imported,
and nothing here starts or ends a process.
"""
