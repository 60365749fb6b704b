"""The ranks of one trial as their launchers see them: how the nodes meet, and which rank the others wait for in vain.

Messages between ranks are in `detlab.core.distributed`; which nodes a trial gets is the master's decision.
"""
