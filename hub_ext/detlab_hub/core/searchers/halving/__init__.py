"""Successive halving: trials compared at rungs, of which the best train on."""
