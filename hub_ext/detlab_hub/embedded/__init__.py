"""The embedded cluster: JupyterHub, proxy, master and one agent on this machine, kept running by a supervisor."""
