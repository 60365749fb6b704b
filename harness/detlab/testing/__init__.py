"""The contracts of seams (storages, runtimes, strategies, …), and the double of the master that they need."""
