"""Packing code: the files of a folder that are uploaded, the modules that a piece of Python needs, and the archive.

Only local files are read here. Sending a bundle is an operation (`detlab.client.operations`); no HTTP and no configs
here.
"""
