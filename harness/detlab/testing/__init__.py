"""Doubles of the master behind real HTTP, and the contract of checkpoint stores: for tests, ours and yours."""
