"""The master: its pure core, its database, its use cases, its HTTP face, and the Hub's spawners that ask it."""
