"""Successive halving: trials are compared at rungs, and the best continue."""
