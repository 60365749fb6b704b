"""Commands on what users share: the queue, resource pools and quotas.

No command on somebody's own experiments or tasks lives here.
"""
