#!/bin/sh
# Print which Python the environment is made from: `python3`, or the system's own where that is of the same version.
# Distributions build theirs with profile-guided optimisation, pyenv does not: all tests take a tenth less time with it.
own=/usr/bin/python3
say='import sys, ensurepip, sqlite3, ssl, venv; print(sys.version_info[:2])'
wanted=$(python3 -c "$say" 2>/dev/null)
if [ -n "$wanted" ] && [ "$($own -c "$say" 2>/dev/null)" = "$wanted" ]; then echo $own; else echo python3; fi
