#!/bin/sh
# Kubernetes 1.20.2 from Debian's source, for the tests that need a real cluster. What is there already is kept, so a second
# run takes no time. The first takes four to eight minutes of two processors, 34 MB of download and 4 GB of disk, of which
# 520 MB stay.
#
#     sh tests/testbed/kubernetes/build.sh [COMPONENT...]     # default: all that the tests need
#
# The programs come into $DETLAB_KUBERNETES_BIN, or $XDG_CACHE_HOME/detlab/kubernetes-1.20.2/bin (~/.cache).
# It needs root on Debian bookworm: that is the last release whose source of Kubernetes has the servers in it.
set -eu
VERSION=1.20.2
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/detlab/kubernetes-$VERSION
BIN=${DETLAB_KUBERNETES_BIN:-$CACHE/bin}
[ $# -gt 0 ] || set -- pause kubectl kube-scheduler kube-apiserver kube-controller-manager kubelet kube-proxy

refuse() { echo "cannot build Kubernetes here: $1" >&2; exit 1; }
missing() { for part; do [ -x "$BIN/$part" ] || printf ' %s' "$part"; done; }

# --- Debian's packages: what builds, and what runs beside the programs -----------------------------------
packages() {
  wanted=""
  [ -x /usr/bin/etcd ] || wanted="$wanted etcd-server"
  [ -x /usr/lib/cni/bridge ] || wanted="$wanted containernetworking-plugins"
  command -v conntrack >/dev/null || [ -x /usr/sbin/conntrack ] || wanted="$wanted conntrack"
  command -v socat >/dev/null || wanted="$wanted socat"
  command -v containerd >/dev/null || wanted="$wanted containerd"
  command -v openssl >/dev/null || wanted="$wanted openssl"
  command -v iptables >/dev/null || [ -x /usr/sbin/iptables ] || wanted="$wanted iptables"
  if [ -n "$(missing "$@")" ]; then
    [ -x /usr/lib/go-1.19/bin/go ] || wanted="$wanted golang-1.19-go"
    command -v dpkg-source >/dev/null || wanted="$wanted dpkg-dev"
    command -v flock >/dev/null || wanted="$wanted util-linux"
  fi
  [ -n "$wanted" ] || return 0
  [ "$(id -u)" = 0 ] || refuse "as root, first: apt-get install$wanted"
  command -v apt-get >/dev/null || refuse "needs Debian's packages:$wanted"
  echo "==> installing from Debian for Kubernetes:$wanted"
  export DEBIAN_FRONTEND=noninteractive
  # The tests start what they need themselves: no service is to run on this machine because of them.
  policy=/usr/sbin/policy-rc.d
  [ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' > $policy; chmod 755 $policy; ours=$policy; }
  apt-get update -qq
  # shellcheck disable=SC2086  # several packages
  apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 $wanted >/dev/null
}

# --- the source: Debian's, read by an apt of its own, so that the machine's stays as it is ---------------
fetch() {
  W=$1
  mkdir -p "$W/apt/lists/partial" "$W/apt/cache/archives/partial" "$W/gopath/src/k8s.io" \
    "$W/apt/etc/sources.list.d" "$W/apt/etc/apt.conf.d" "$W/apt/etc/preferences.d"
  for found in /etc/apt/sources.list.d/*.sources; do
    [ -e "$found" ] && awk '/^Types:/{$0="Types: deb deb-src"}1' "$found" > "$W/apt/etc/sources.list.d/${found##*/}"
  done
  if [ -e /etc/apt/sources.list ]; then
    sed -n 's/^deb \(.*\)/deb \1\ndeb-src \1/p' /etc/apt/sources.list > "$W/apt/etc/sources.list.d/plain.list"
  fi
  cat > "$W/apt/apt.conf" <<CONF
Dir::Etc "$W/apt/etc"; Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "$W/apt/etc/sources.list.d";
Dir::State::lists "$W/apt/lists"; Dir::Cache "$W/apt/cache"; APT::Sandbox::User "root";
CONF
  (
    export APT_CONFIG="$W/apt/apt.conf"
    cd "$W"
    apt-get update -qq
    source=$(apt-cache showsrc kubernetes 2>/dev/null | sed -n "s/^Version: \(.*$VERSION.*\)/\1/p" | head -n 1)
    [ -n "$source" ] || refuse "apt finds no source of Kubernetes $VERSION: it is in Debian bookworm"
    apt-get source -qq --download-only "kubernetes=$source" >/dev/null
    apt-get download -qq golang-github-modern-go-reflect2-dev >/dev/null
  )
  S=$W/gopath/src/k8s.io/kubernetes
  dpkg-source --no-check -x "$W"/kubernetes_1.20*.dsc "$S" >/dev/null
  # The vendored reflect2 1.0.1 does not know Go 1.18 and newer: servers die as soon as they write a map as JSON.
  dpkg-deb -x "$W"/golang-github-modern-go-reflect2-dev_*.deb "$W/reflect2"
  vendored=$S/vendor/github.com/modern-go/reflect2
  rm -rf "$vendored"
  cp -r "$W/reflect2/usr/share/gocode/src/github.com/modern-go/reflect2" "$vendored"
  rm -f "$vendored/go.mod"
}

# The models of the API, which Debian's package makes while it builds.
generate() {
  cd "$S"
  go build -o "$W/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  inputs=$( (grep -rl --include='*.go' '+k8s:openapi-gen=' pkg cmd plugin vendor/k8s.io/*/ || :) |
    grep -v -e '^vendor/k8s.io/code-generator/' -e '^vendor/k8s.io/sample-apiserver/' -e _test.go -e zz_generated \
      -e kube-openapi/ -e gengo | xargs -n1 dirname | sed 's#//*#/#g' | LC_ALL=C sort -u |
    sed 's#^#k8s.io/kubernetes/#' | paste -sd, )
  "$W/openapi-gen" --logtostderr -i "$inputs" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
    -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$W/violations" 2>"$W/openapi-gen.log" ||
    { tail "$W/openapi-gen.log" >&2; refuse "the models of the API could not be generated (above)"; }
}

# The first process of a pod, which holds its network: it waits, and takes what has ended.
write_pause() {
  mkdir -p "$W/pause"
  cat > "$W/pause/main.go" <<'GO'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
GO
}

build() {
  export PATH=/usr/lib/go-1.19/bin:$PATH GO111MODULE=off GOPATH="$W/gopath" GOCACHE="$W/gocache" CGO_ENABLED=0 GOFLAGS=
  [ "$*" = pause ] || { fetch "$W"; generate; }
  flags="-s -w"
  for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    for at in "$package" "k8s.io/kubernetes/vendor/$package"; do
      flags="$flags -X $at.gitVersion=v$VERSION -X $at.gitMajor=1 -X $at.gitMinor=20"
    done
  done
  for part; do
    begun=$(date +%s)
    if [ "$part" = pause ]; then write_pause; from=$W/pause; else from=$S/cmd/$part; fi
    # A program is there whole or not at all.
    (cd "$from" && go build -p 2 -ldflags "$flags" -o "$BIN/.$part" .)
    mv "$BIN/.$part" "$BIN/$part"
    echo "    $part ($(($(date +%s) - begun)) s)"
  done
}

W="" ours=""
clean() { [ -z "$W" ] || { chmod -R u+w "$W"; rm -rf "$W"; }; [ -z "$ours" ] || rm -f "$ours"; }
trap clean EXIT
trap 'exit 130' HUP INT TERM
packages "$@"
[ -n "$(missing "$@")" ] || exit 0
mkdir -p "$BIN"
exec 9> "$BIN/.lock"
flock 9  # two runs at once: the second waits and finds all there
parts=$(missing "$@")
[ -n "$parts" ] || exit 0
echo "==> building Kubernetes $VERSION from Debian's source:$parts (four to eight minutes, into $BIN)"
W=$(mktemp -d "$BIN/.build-XXXXXX")
# shellcheck disable=SC2086  # several parts
build $parts
