"""The ranks of one trial in their launchers: the rendezvous of the nodes, and the watchdog for hanging ranks.

Messages between ranks are in `detlab.core.distributed`; which nodes a trial gets is the master's decision.
"""
