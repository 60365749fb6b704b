"""ImportsNothing: the module that it needs is not there."""

import detlab as det  # noqa: F401

import no_such_module_anywhere  # noqa: F401
