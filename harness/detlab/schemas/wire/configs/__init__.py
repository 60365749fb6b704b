"""Wire models of what is laid under and over configs: templates and config policies. Nothing here merges them."""
