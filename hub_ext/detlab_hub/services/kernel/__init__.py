"""What every use case stands on: callers, rights, a transaction (`Turn`), the way in to it (`Shell`), settings, audit.

Nothing here knows an experiment's or a task's life; what does is above, and reaches the kernel by `Lifecycle`.
"""
