#!/bin/sh
# Runs a command on what others leave of the processors: setsid sh aside.sh COMMAND...
# Where Linux shares processors out by session, a niceness counts only within one: the session has a niceness, too.
{ echo 19 > /proc/self/autogroup; } 2>/dev/null || true
exec nice -n 19 "$@"
