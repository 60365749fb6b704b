"""The version of this half, for the handshake with front ends."""

from importlib.metadata import version

VERSION = version("detlab")
