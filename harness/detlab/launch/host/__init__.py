"""Linux facilities for starting and ending tasks: processes, control groups, mounts, user ids, removal of folders.

Nothing here knows tasks or the master. `become` and `network`, which are programs, are beside this package.
"""
