"""The job queue: its order, moving jobs, why something waits, when it may start, how full pools are.

Who gets a place is decided by a pass of `placement`.
"""
