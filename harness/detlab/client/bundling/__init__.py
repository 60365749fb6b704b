"""Packing code: which files of a folder travel, which modules a piece of Python needs, and the archive made of them.

Only local files are read here. Sending a bundle is an operation (`detlab.client.operations`); no HTTP and no configs
here.
"""
