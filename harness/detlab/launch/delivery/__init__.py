"""From the output and the metrics spool of a task to the master: lines, spool files, what to send when, sending.

The agent delivers with the same code what a dead launcher left. Only the standard library is imported, and nothing
here starts or ends a process.
"""
