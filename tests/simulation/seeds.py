"""Seeds that found a bug, with one line why; they run in every CI, beside the ranges."""

from __future__ import annotations

NAMED: dict[int, str] = {}
"""seed -> the bug it found"""
