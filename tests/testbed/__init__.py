"""Real parts for tests, started and ended: clusters, databases, engines, browsers; doubles of our own. No tests."""
