"""The contracts of the master's own seams, for tests of packages that add to it; doubles are in `detlab.testing`."""
