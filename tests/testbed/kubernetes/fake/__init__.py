"""An API server of Kubernetes that lies, breaks off and forgets on demand, with nodes that run pods as processes.

What it says must be what the real one says: tests/kubernetes/api runs on both. Nothing that no test needs.
"""
