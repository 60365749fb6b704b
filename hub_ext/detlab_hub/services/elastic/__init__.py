"""Elastic pools, carried out: list instances, launch some, end some.

The wanted number is decided in `core.provisioning`; providers are in `backends.instances`.
"""
