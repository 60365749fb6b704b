"""What the master decides, pure: no I/O, no clock, no source of randomness."""
