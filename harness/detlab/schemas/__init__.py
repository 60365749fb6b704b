"""The data that detlab reads and says: experiment configs and wire models. Pure."""
