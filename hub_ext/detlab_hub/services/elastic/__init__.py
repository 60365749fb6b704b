"""Elastic pools, carried out: what instances there are, which to launch, which to end.

How many are wanted is decided in `core.provisioning`; providers are in `backends.instances`.
"""
