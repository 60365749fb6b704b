"""Agents: enrolment, their connections, draining, removal, and administrators' actions on them.

The effect of an agent's report on an allocation is decided in `lifecycle`.
"""
