"""A shell of the cluster in the local terminal: the connection, keyboard input and output.

Selecting and starting a shell is in `detlab.cli.commands.tasks`; no command is declared here.
"""
