"""What is laid under configs (templates, defaults of workspace, pool and cluster); the use cases of config policies.

`layers` completes what is submitted. The policies themselves are applied in `base.configs`. Nothing here starts or ends
anything.
"""
