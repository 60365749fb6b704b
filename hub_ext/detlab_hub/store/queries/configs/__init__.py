"""Queries of what is laid under and over configs."""
