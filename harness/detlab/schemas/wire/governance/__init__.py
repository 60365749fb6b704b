"""Wire models of governed learning: what is recorded, signed and verified."""
