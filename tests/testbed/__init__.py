"""Real parts for tests, started and ended: clusters, databases, engines, browsers, networks. No test lives here."""
