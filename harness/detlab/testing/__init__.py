"""Doubles of the master behind real HTTP, and the contracts of seams (storages, search methods), for your tests too."""
