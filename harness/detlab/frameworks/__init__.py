"""What the integrations with other frameworks share: versions, a trial's length, when to stop, random states.

Each integration is a package of its own (`detlab.transformers`, `detlab.lightning`, `detlab.keras`) that imports its
framework. Nothing here imports one; torch is used where it is loaded already.
"""

from detlab.frameworks.errors import FrameworkError, FrameworkVersionError
from detlab.frameworks.lengths import SearchLength
from detlab.frameworks.trial import TrialControl

__all__ = ["FrameworkError", "FrameworkVersionError", "SearchLength", "TrialControl"]
