"""The sub-commands of `det`, a module per group: parse the arguments, call the client once, print the answer.

Each is imported only when it is called: `det --help` reads their `COMMANDS`, the names with one line of help each, from
the text of the modules.
How text and errors look is in `detlab.cli.output`; what a command needs to
know of the master is in `detlab.client`: no HTTP, no paths of the REST API and no decisions of the master belong
here.
"""
