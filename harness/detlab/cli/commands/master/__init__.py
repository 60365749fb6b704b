"""Commands on the master itself: its log, its settings, its message to everybody, and calls of its API."""
