"""What `det` writes: tables, JSON, errors, logs and progress. Texts of users never control the terminal.

Nothing here declares a command or an option, and nothing here changes anything on the cluster.
"""
