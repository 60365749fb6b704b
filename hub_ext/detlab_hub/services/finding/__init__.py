"""Finding trials and experiments: by filters, in orders, with chosen columns; completion; saved views.

Not here: the language (core/filters), its SQL (store/queries/finding).
"""
