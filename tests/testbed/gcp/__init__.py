"""Google Compute Engine, as far as elastic pools use it: a fake that checks requests by Google's own description."""
