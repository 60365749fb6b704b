"""What is laid under configs (templates, defaults of workspace, pool and cluster) and over them (config policies).

`layers` completes what is submitted, `rules` holds every change of what is there to the policies. Nothing here starts
or ends anything.
"""
