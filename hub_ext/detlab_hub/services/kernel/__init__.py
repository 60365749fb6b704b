"""The base of all services: callers, rights, a transaction (`Turn`), its entry point (`Shell`), settings, audit.

Nothing here knows an experiment's or a task's life; what does is above, and reaches the kernel by `Lifecycle`.
"""
