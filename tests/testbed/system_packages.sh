#!/bin/sh
# The tests start a real PostgreSQL, a real chromium, a real nginx, a real Docker engine, a real registry of containers,
# a real sshd and a real Slurm. On Debian as root this installs what is missing (and says so first); elsewhere it names what is missing
# and how to get it, and the tests that need it say why they are skipped. Of chromium the build without windows will do,
# which is the quicker one; where the whole browser is there already, it is only tried for.
set -u
wanted=""
shell=chromium-headless-shell
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null 2>&1 || wanted="$wanted postgresql"
if command -v $shell >/dev/null 2>&1; then shell=""
elif command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; then browser=there
else browser=missing; fi
command -v dockerd >/dev/null 2>&1 || [ -x /usr/sbin/dockerd ] || wanted="$wanted docker.io iptables"
command -v busybox >/dev/null 2>&1 || wanted="$wanted busybox-static"
command -v ip >/dev/null 2>&1 || [ -x /usr/sbin/ip ] || wanted="$wanted iproute2"
command -v nginx >/dev/null 2>&1 || [ -x /usr/sbin/nginx ] || wanted="$wanted nginx"
command -v docker-registry >/dev/null 2>&1 || wanted="$wanted docker-registry"
command -v sshd >/dev/null 2>&1 || [ -x /usr/sbin/sshd ] || wanted="$wanted openssh-server"
command -v slurmctld >/dev/null 2>&1 || [ -x /usr/sbin/slurmctld ] || wanted="$wanted slurm-wlm munge"
[ -n "$wanted$shell" ] || exit 0
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
  echo "==> installing from Debian for the tests:$wanted${shell:+ $shell}"
  export DEBIAN_FRONTEND=noninteractive
  # The tests start what they need themselves: no service is to run on this machine because of them.
  policy=/usr/sbin/policy-rc.d
  [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' > $policy && chmod 755 $policy && trap 'rm -f $policy' EXIT; }
  install() { apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" >/dev/null; }
  if apt-get update -qq; then
    if [ -n "$shell" ] && ! install $shell; then
      echo "no $shell here: the whole browser takes its place" >&2
      [ "$browser" = there ] || wanted="$wanted chromium"
    fi
    [ -z "$wanted" ] && exit 0
    install $wanted && exit 0
  elif [ -z "$wanted" ] && [ "$browser" = there ]; then
    exit 0
  fi
  echo "could not install:$wanted (apt-get failed; see above)" >&2
  exit 1
fi
[ -z "$shell" ] || [ "$browser" = there ] || wanted="$wanted chromium"
[ -n "$wanted" ] || exit 0
echo "missing for some tests:$wanted" >&2
echo "   get them: sudo apt-get install$wanted   (or your system's packages of the same names)" >&2
echo "   the tests that need them will be skipped with this reason" >&2
