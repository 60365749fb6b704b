"""The node daemon: it dials out to the master, offers its slots and runs tasks on them.

It does not listen on any port, keeps its tasks alive through its own and the master's death, and knows the rest of the
system only by the messages of `detlab.schemas.wire`.
"""
