"""ImportsNothing: the module that it needs is not there."""

import no_such_module_anywhere  # noqa: F401  (this fails)

import detlab as det  # noqa: F401  (as a trial begins)
