"""Helpers of a server of the Hub inside a task: TLS relays to and from it, and the idle watch.

The servers themselves (`hub_server`, `tensorboard_server`) are programs beside this package; when an idle one ends is
the master's decision.
"""
