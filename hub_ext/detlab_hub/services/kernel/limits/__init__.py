"""What one user may ask of the master: rates, counts and sizes, told when reached, and shown to administrators.

Here live the counting and the wording; where a limit is enforced is where the thing is made. What limits slots is a
quota, not here.
"""
