#!/usr/bin/env bash
# Install the programs that the tests use, or the packages that are named, with apt, as root or by sudo without a
# password, and say which. Where that cannot be, say what is missing: the tests that need it are skipped by name.
set -euo pipefail

# program:package
needed=(bwrap:bubblewrap newuidmap:uidmap pasta:passt nft:nftables ip:iproute2 mkfs.ext4:e2fsprogs git:git node:nodejs
  go:golang-go R:r-cran-irkernel zsh:zsh dockerd:docker.io iptables:iptables runsc:runsc busybox:busybox
  podman:podman patch:patch ps:procps)
missing=("$@")
(($#)) && needed=()
for pair in ${needed[@]+"${needed[@]}"}; do
  PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
done
((${#missing[@]})) || exit 0

root=()
if [ "$(id -u)" != 0 ]; then
  root=(sudo -n)
fi
if ! command -v apt-get >/dev/null || { ((${#root[@]})) && ! sudo -n true 2>/dev/null; }; then
  echo "Not installed, and not to be installed from here (that needs apt and root, or sudo without a password):"
  echo "  ${missing[*]}"
  (($#)) || echo "Tests that need them are skipped."
  exit 0
fi
echo "Installing what the tests use: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt=("${root[@]}" apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
"${apt[@]}" update
"${apt[@]}" -y --no-install-recommends install "${missing[@]}" >/dev/null
