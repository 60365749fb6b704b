"""The makers of the generated reference pages, one module for each source of what they say."""
