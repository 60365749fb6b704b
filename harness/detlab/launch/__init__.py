"""What wraps every task: the launcher, its spool, log shipping, rank wrappers and user identities.

The launcher (`python -m detlab.launch.task --dir DIR`) is the same under every backend. Nothing here imports torch,
and nothing that runs before the user's code starts imports more than the standard library.
"""
