"""The listening sockets of the embedded cluster: who holds them, which ports, what answers while a part is down.

The parts themselves are started and watched by the supervisor.
"""
