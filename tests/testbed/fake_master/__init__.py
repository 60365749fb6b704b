"""A master of the REST API in memory, behind real HTTP, for tests of what talks to one: client, commands, magics."""
