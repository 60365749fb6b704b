"""TODO: say what lives here."""
