"""Routes of the model registry: models, versions, labels, comparisons, the search for versions.

Not here: the pages that show them (web/pages.py and labextension/).
"""
