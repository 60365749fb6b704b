"""Routes of what teams order their work by: workspaces with members, projects, moves between them.

Not here: the routes of what lies in them, which take a workspace and a project as filters.
"""
