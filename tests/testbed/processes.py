"""Ends the programs that tests started."""

from __future__ import annotations

import subprocess


def end(process: subprocess.Popen[bytes], patience: float) -> None:
    """Ask a program to end; after `patience` seconds make it."""
    process.terminate()
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
