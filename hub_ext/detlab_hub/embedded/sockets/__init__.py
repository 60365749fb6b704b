"""The listening sockets of the embedded cluster: their owners, their ports, replies while a part is down.

The parts themselves are started and watched by the supervisor.
"""
