"""Deferred building of pydantic validators: most processes use a few models of very many."""

from __future__ import annotations

from pydantic import VERSION

ON_FIRST_USE = tuple(int(part) for part in VERSION.split(".")[:2]) >= (2, 14)
"""Whether a model is built when it is first used (`defer_build`), which saves each process a tenth of a second.

Not with an earlier pydantic: there a thread that comes while another one builds a model may validate by its parent.
"""
