"""Routes of tasks: what trials report and ask, what users start, what the Hub's spawner asks for.

A handler parses, calls one service and replies; no decision is made here.
"""
