"""ImportsNothing: the module that it needs is not there."""

import no_such_module_anywhere  # noqa: F401

import detlab as det  # noqa: F401
