#!/usr/bin/env bash
# Run the README's two commands on a minimal Debian: Python, make, and nothing else of this machine.
#
# `fresh.sh [COMMAND...]` runs these make targets instead of `run test`. It needs root, mmdebstrap and a Debian mirror.
# Of the outer machine the inner one has the kernel, the devices, the network, and how package indexes are reached: pip's
# global settings and the certificates. It has no home, no cache and no package of it.
set -euo pipefail
cd "$(dirname "$0")/.."
targets=("${@:-run test}")

if [ "$(id -u)" != 0 ]; then
  echo "make fresh makes a root file system: it needs root." >&2
  exit 1
fi
command -v mmdebstrap >/dev/null || tests/programs.sh mmdebstrap

place=$(mktemp -d /var/tmp/atoll-fresh.XXXXXX)
trap 'rm -rf --one-file-system "$place"' EXIT
root="$place/root"
began=$(date +%s)
echo "Making a minimal Debian in $root"
mmdebstrap --quiet --variant=minbase --include=ca-certificates,make,python3 bookworm "$root" >/dev/null
echo "made in $(($(date +%s) - began)) s: $(chroot "$root" dpkg-query -f '.\n' -W | wc -l) packages, $(du -sm "$root" | cut -f1) MB"

mkdir -p "$root/work/atoll" "$root/outer"
git archive HEAD | tar -x -C "$root/work/atoll"
for each in /etc/pip.conf /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt; do
  if [ -e "$each" ]; then
    cp --dereference "$each" "$root$each"
  fi
done

cat >"$root/work/inside" <<'INSIDE'
set -eu
mount -t proc proc /proc
mount --rbind /outer/sys /sys
mount --rbind /outer/dev /dev
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=755 tmpfs /run
umount -l /outer
cd /work/atoll

helpers() {
  for each in /proc/[0-9]*; do
    # One that has ended has no command line any more.
    case $(cat "$each/comm" 2>/dev/null) in
      atoll-*) [ -z "$(tr -d '\0' 2>/dev/null <"$each/cmdline")" ] || cat "$each/comm" ;;
    esac
  done
}

# What waits to make sandboxes would be killed with this namespace, and its control groups and disks be left to the outer
# machine. Who has lost its state directory, as those of tests have, sees that within half a minute.
end_helpers() {
  .venv/bin/atoll doctor --stop-helpers || return 0
  turns=0
  while [ -n "$(helpers)" ]; do
    turns=$((turns + 1))
    if [ "$turns" -gt 300 ]; then
      echo "still there, and killed now:" $(helpers) >&2
      return 0
    fi
    sleep 0.2
  done
}
trap end_helpers EXIT

for target in "$@"; do
  began=$(date +%s)
  echo "== make $target"
  status=0
  make "$target" </dev/null || status=$?
  echo "== make $target: exit $status after $(($(date +%s) - began)) s"
  [ "$status" = 0 ] || exit "$status"
done
INSIDE

# Its root must be a mount of its own, as a machine's is: sandboxes exchange theirs.
variables=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
for name in PIP_CERT PIP_INDEX_URL PIP_EXTRA_INDEX_URL http_proxy https_proxy no_proxy; do
  if [ -n "${!name:-}" ]; then
    variables+=("$name=${!name}")
  fi
done
export place
# shellcheck disable=SC2016,SC2086
unshare --mount --pid --fork --kill-child sh -euc '
  mount --make-rprivate /
  mount --rbind "$place/root" "$place/root"
  cd "$place/root"
  pivot_root . outer
  exec chroot . /usr/bin/env -i "$@"
' sh "${variables[@]}" sh /work/inside ${targets[*]}
