#!/usr/bin/env bash
# fresh_root.sh SOURCE_ROOT: ./quickstart and ./runtests work in a bare Debian 12 root.
#
# Makes a minimal root with debootstrap from the mirror this machine's apt uses, copies the tree
# into it and runs both as root. Skipped (77) unless run as root with debootstrap and a Debian
# mirror. FRESH_ROOT names a folder in which the bare root is kept for the next run.
set -euo pipefail
source_root=$(readlink -f "$1")

skip() {
  echo "skipped: $1"
  exit 77
}

((EUID == 0)) || skip "only root can make a root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' \
  2>/dev/null | head -n 1)
[[ -n $mirror ]] || skip "apt here has no source of Debian 12 (bookworm)"

if [[ -n ${FRESH_ROOT:-} ]]; then
  root=$FRESH_ROOT
else
  root=$(mktemp -d)
fi
mounted=()
tidy_up() {
  local point
  for point in "${mounted[@]}"; do umount "$point" || umount -l "$point" || true; done
  # Never delete through a mount that would not go away.
  if [[ -z ${FRESH_ROOT:-} ]] && ! grep -q " $root/" /proc/mounts; then rm -rf "$root"; fi
}
trap tidy_up EXIT

if [[ ! -e $root/bare ]]; then
  debootstrap --variant=minbase bookworm "$root" "$mirror" >/dev/null ||
    { echo "debootstrap failed" >&2; exit 1; }
  # How this machine reaches its mirror: name resolution, proxies, certificates.
  for file in /etc/resolv.conf /etc/hosts; do
    [[ ! -e $file ]] || cp -L "$file" "$root$file"
  done
  for file in /etc/apt/apt.conf.d/*prox*; do
    [[ ! -e $file ]] || cp -L "$file" "$root/etc/apt/apt.conf.d/"
  done
  if [[ -e /etc/ssl/certs/ca-certificates.crt ]]; then
    mkdir -p "$root/etc/ssl/certs"
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  fi
  touch "$root/bare"
fi

rm -rf "$root/project"
mkdir "$root/project"
tar -C "$source_root" --exclude=./.git --exclude='./build*' --exclude=./certificates -cf - . |
  tar -C "$root/project" -xf -

mount -t proc proc "$root/proc" && mounted=("$root/proc" "${mounted[@]}")
mount --bind /dev "$root/dev" && mounted=("$root/dev" "${mounted[@]}")

proxies=()
while IFS= read -r line; do proxies+=("$line"); done < <(env | grep -iE '^(https?|no)_proxy=' || true)
inside() {
  env -i HOME=/ PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb "${proxies[@]}" \
    chroot "$root" /bin/bash -c "cd /project && $1"
}

echo "== ./quickstart"
inside ./quickstart
echo "== ./quickstart, again"
again=$(inside ./quickstart)  # whole: a reader that stops early would end it by SIGPIPE
grep -q '^\$ build-release/cli/headroom certify' <<<"$again"
echo "== ./runtests"
inside ./runtests | tee "$root/runtests.log"
tail -n 1 "$root/runtests.log" | grep -Eq '^[1-9][0-9]* passed, 0 failed$'
