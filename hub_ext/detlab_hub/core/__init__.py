"""What the master decides, pure: no I/O, no clock, no randomness of its own."""
