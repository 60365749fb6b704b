"""Agents: enrolment, their connections, draining, removal, and what administrators do with them.

What an agent's report means for an allocation is decided in `lifecycle`.
"""
