"""Populations: trials that start from what earlier ones have learned."""
