"""Workspaces and projects from Python: what teams order their work by.

Not here: what lies in them, which has resources of its own, and the requests (`operations/projects.py`).
"""
