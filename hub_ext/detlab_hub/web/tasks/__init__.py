"""Routes of tasks: reports and requests of trials, tasks that users start, requests of the Hub's spawner.

A handler parses, calls one service and replies; no decision is made here.
"""
