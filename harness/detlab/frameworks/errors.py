"""What cannot work between a framework and a trial."""

from __future__ import annotations

from detlab.errors import DetlabError


class FrameworkError(DetlabError, ValueError):
    """A trainer of another framework that does not fit its trial."""

    default_code = "framework.refused"


class FrameworkVersionError(DetlabError, ImportError):
    """A framework that is not installed, or older or newer than what was tested."""

    default_code = "framework.version"
