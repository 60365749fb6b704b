"""How the client reaches a master: finding it, tokens, requests with retries, event streams and downloads.

Nothing here knows a single operation of the REST API; these are in `detlab.client.operations`.
"""
