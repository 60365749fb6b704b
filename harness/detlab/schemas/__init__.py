"""Empty until its room is furnished."""
