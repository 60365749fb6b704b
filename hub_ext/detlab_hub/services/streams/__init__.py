"""Live streams of events and output: read from the database beyond a cursor, woken by commits.

Nothing is written here. What an event carries is decided by the unit of work that writes it.
"""
