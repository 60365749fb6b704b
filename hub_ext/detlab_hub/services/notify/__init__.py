"""What the master tells the world outside: durable consumers of the event log, each with a cursor of its own.

Streams of front ends are in `streams`: these start anew after a restart, a consumer misses nothing.
"""
