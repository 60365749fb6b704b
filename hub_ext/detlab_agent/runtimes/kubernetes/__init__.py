"""Tasks as pods of a Kubernetes cluster, whose nodes one agent speaks for; nothing here is imported by the master.

`api` and `reflector` speak with the API server, `nodes` and `pods` translate, `endings` judges, `runtime` ties them.
"""
