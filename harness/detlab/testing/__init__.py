"""Doubles of the master behind real HTTP, and the contracts of seams (storages, strategies, …), for your tests too."""
