"""The job queue: its order, moving jobs, pending reasons, estimated starts, how full pools are.

Which task is placed is decided by a pass of `placement`.
"""
