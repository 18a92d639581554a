#!/bin/sh
# Runs a command in a root file system that becomes the root of its mount namespace: in a chroot the kernel creates no user
# namespaces. To be started by `unshare --mount --pid --fork`, by root.
#
#   enter.sh ROOT [FOLDER=FOLDER_INSIDE]... -- COMMAND [WORD]...
set -eu

root=$1
shift
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
while [ "$1" != -- ]; do
  mkdir -p "./${1#*=}"
  mount --bind -o ro "${1%%=*}" "./${1#*=}"
  shift
done
shift
mkdir -p .outside
pivot_root . .outside
cd /
umount -l /.outside
rmdir /.outside
exec "$@"
