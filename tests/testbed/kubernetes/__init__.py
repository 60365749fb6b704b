"""Kubernetes for tests: an API server of ours (`fake`), and the real one, built from Debian's source. No tests."""
