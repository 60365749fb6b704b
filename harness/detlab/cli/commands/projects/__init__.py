"""Commands of what teams order their work by: workspaces, their members, projects, roles.

Not here: `det experiment move` and `det model move`, beside the other commands of these.
"""
