"""Tasks as containers of the node's Docker engine: the engine, images, users inside, and a container's start and end.

What every runtime does for a task is one level up. Nothing here talks to the master.
"""
