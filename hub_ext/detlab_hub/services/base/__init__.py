"""The base of all services: callers, rights, a transaction (`UnitOfWork`), who starts one (`ServiceContext`), settings.

Nothing here knows an experiment's or a task's life; what does is above, and is reached by `StateMachines`.
"""
