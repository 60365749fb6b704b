"""The HTTP face of the master: thin handlers, one scope each, under `/services/detlab/`."""
