"""The master: its pure core, its database, its services, its HTTP API, and the Hub's spawners that call it."""
