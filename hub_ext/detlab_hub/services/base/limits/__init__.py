"""Limits of one user's requests: rates, counts and sizes, reported when reached, and shown to administrators.

The counting and the messages are here; a limit is enforced where the limited object is made. What limits slots is a
quota, not here.
"""
