"""Errors of tracked runs. Logging raises none of them, unless it was asked to."""

from __future__ import annotations

from detlab.errors import DetlabError


class NoRun(DetlabError):
    """Something is logged, and no run has begun."""

    default_code = "run.none"


class RunFolderError(DetlabError):
    """A folder is none of a run, or of one that this version cannot read."""

    default_code = "run.folder"
