"""Browsers, JupyterLab, kernels and terminals, used as a person uses them. Nothing of the master."""
