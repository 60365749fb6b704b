"""A shell of the cluster in the local terminal: the connection, the keys that go in and the output that comes back.

Which shell to open, and starting one, is the business of `detlab.cli.commands.tasks`; no command is declared here.
"""
