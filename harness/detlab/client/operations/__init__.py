"""Every operation on the master, once, as calls and flows of calls, for the blocking and the asynchronous client.

No I/O happens here: `detlab.client.transport` sends the calls. Objects for users (experiments, trials, tasks) are
made in the modules above this package, never here.
"""
