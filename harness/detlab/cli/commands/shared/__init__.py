"""Commands on what users share: the queue, resource pools, quotas and storage.

No command on somebody's own experiments or tasks lives here.
"""
