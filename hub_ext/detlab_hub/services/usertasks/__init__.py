"""Tasks that users start: notebooks, shells, commands, TensorBoards, notebook runs, and their servers at the Hub.

Their states change in `lifecycle`; trials are not user tasks.
"""
