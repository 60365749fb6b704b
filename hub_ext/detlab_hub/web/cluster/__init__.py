"""Routes of the cluster: agents, pools, queue, quotas, limits, audit, usage, and what front ends start from.

A handler parses, calls one service and replies; no decision is made here.
"""
