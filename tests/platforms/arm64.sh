#!/bin/sh
# Runs a part of the tests, and the same simulations as here, on arm64: in a Debian made by debootstrap, whose programs
# qemu's user mode emulates. Compares what the simulations leave with what they leave on this machine.
#
#   make arm64-check                       as root (debootstrap, chroot and binfmt_misc ask for it)
#
# The root is kept in ARM64_ROOT (by default mrclab-arm64 in the folder for temporary files, some 1.5 GB), so that a second
# run begins with the tests. Wheels are fetched by this machine's pip for arm64; the root itself needs no network.
# ARM64_MIRROR and ARM64_SUITE name another mirror or release. ARM64_PARTS takes a part of
# "filter libmrc digests simulation unit kernel compiled". Where this machine has a cross compiler (gcc-aarch64-linux-gnu), the root
# uses it, ten times as fast as an emulated one. On an arm64 machine none of this is needed: run `make test`.
set -eu

cd "$(dirname "$0")/../.."
suite=${ARM64_SUITE:-bookworm}
mirror=${ARM64_MIRROR:-http://deb.debian.org/debian}
work=${ARM64_ROOT:-${TMPDIR:-/tmp}/mrclab-arm64}
parts=${ARM64_PARTS:-filter libmrc digests simulation unit kernel compiled}
seeds=${ARM64_SEEDS:-0 1 2 3 4 5 6 7}
experiment=${ARM64_EXPERIMENT:-lossy-link}
packages=python3,python3-venv,python3-dev,gcc,libc6-dev,iproute2,procps,ca-certificates,git
root=$work/root
python=$PWD/.venv/bin/python
binfmt=/proc/sys/fs/binfmt_misc

[ "$(id -u)" = 0 ] || { echo "arm64-check: debootstrap and chroot need root; run it with sudo" >&2; exit 2; }
[ -x "$python" ] || { echo "arm64-check: .venv is missing; run make setup first" >&2; exit 2; }
registered= mounted= proc= bound= cross=
leave() {
  for folder in $bound; do umount -l "$root$folder"; done
  if [ -n "$proc" ]; then umount -l "$root/proc"; fi
  if [ -n "$registered" ]; then echo -1 > "$binfmt/qemu-aarch64"; fi
  if [ -n "$mounted" ]; then umount "$binfmt"; fi
}
trap leave EXIT
trap 'exit 130' INT TERM
if [ "$(uname -m)" != aarch64 ]; then
  for program in debootstrap qemu-aarch64-static; do
    command -v "$program" > /dev/null || {
      echo "arm64-check: $program is missing: apt-get install debootstrap qemu-user-static" >&2
      exit 2
    }
  done
  # The kernel opens the emulator when it is registered (flag F), so that it is found in the root, too.
  [ -e "$binfmt/register" ] || { mount -t binfmt_misc binfmt_misc "$binfmt" && mounted=yes; }
  if [ ! -e "$binfmt/qemu-aarch64" ]; then
    cat /usr/lib/binfmt.d/qemu-aarch64.conf > "$binfmt/register"
    registered=yes
  fi
fi

mkdir -p "$work/wheels"
if [ ! -e "$work/base.done" ]; then
  rm -rf "$root"
  echo "arm64-check: making a $suite system for arm64 in $root (10 to 20 minutes); its log is $work/debootstrap.log"
  debootstrap --arch=arm64 --variant=minbase --foreign --include="$packages" "$suite" "$root" "$mirror" \
    > "$work/debootstrap.log" 2>&1
  chroot "$root" /debootstrap/debootstrap --second-stage >> "$work/debootstrap.log" 2>&1
  : > "$work/base.done"
fi

[ -e "$root/proc/self" ] || { mount -t proc proc "$root/proc" && proc=yes; }

if [ "$(uname -m)" != aarch64 ] && command -v aarch64-linux-gnu-gcc > /dev/null; then
  cross=/usr/local/bin/cross-cc
  for folder in /lib64 /usr/lib/x86_64-linux-gnu /usr/lib/gcc-cross /usr/aarch64-linux-gnu; do
    mkdir -p "$root$folder"
    mount --bind -o ro "$folder" "$root$folder"
    bound="$bound $folder"
  done
  # It finds its parts by its own place. The emulated linker cannot load its plugin.
  cp "$(readlink -f "$(command -v aarch64-linux-gnu-gcc)")" "$root/usr/bin/cross-gcc"
  printf '#!/bin/sh\nexec /usr/bin/cross-gcc -fno-use-linker-plugin "$@"\n' > "$root$cross"
  chmod 755 "$root$cross"
fi

inside() { # a command in the root, in the copy of the project, with an environment of its own
  # The sanitizer of leaks stops the program, which is not possible under qemu's user mode.
  chroot "$root" env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests ASAN_OPTIONS=detect_leaks=0 ${cross:+"CC=$cross"} \
    ${pure:+MRCLAB_PURE=1} sh -c 'cd /mrclab && exec "$@"' sh "$@"
}

python_version=$(chroot "$root" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if ! cmp -s pyproject.toml "$work/installed"; then
  echo "arm64-check: installing what mrclab needs, as wheels for arm64 and Python $python_version"
  PYTHONPATH=tests "$python" -m platforms.needs > "$work/needs.txt"
  "$python" -m pip download --quiet --disable-pip-version-check --only-binary=:all: --python-version "$python_version" \
    --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 --dest "$work/wheels" --requirement "$work/needs.txt"
  chroot "$root" python3 -m venv /venv
  rm -rf "$root/wheels"
  cp -r "$work/wheels" "$root/wheels"
  cp "$work/needs.txt" "$root/needs.txt"
  chroot "$root" /venv/bin/pip install --quiet --no-compile --no-index --find-links /wheels --requirement /needs.txt
  cp pyproject.toml "$work/installed"
fi

echo "arm64-check: copying the project"
rm -rf "$root/mrclab"
mkdir -p "$root/mrclab"
git ls-files -z | xargs -0 cp --parents -t "$root/mrclab"
site=$(chroot "$root" /venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '/mrclab/%s\n' p4 topologies controller hosts extras > "$root$site/mrclab.pth"
mkdir -p "$root$site/mrclab-0.1.0.dist-info" # results name the version
printf "Metadata-Version: 2.1\nName: mrclab\nVersion: 0.1.0\n" > "$root$site/mrclab-0.1.0.dist-info/METADATA"

: > "$work/summary"
failed=
step() { # NAME COMMAND...: runs it, and notes its exit code and its time
  name=$1
  shift
  case " $parts " in *" $name "*) ;; *) return 0 ;; esac
  echo "=== $name"
  began=$(date +%s)
  code=0
  "$@" || code=$?
  [ "$code" = 0 ] || failed=yes
  echo "$name: exit code $code, $(($(date +%s) - began)) s" >> "$work/summary"
}

tests() { pure=1 inside /venv/bin/python -m pytest -q -rs -p no:cacheprovider "$@"; }

digests() {
  pure=1 inside /venv/bin/python -m support.proto.digests $seeds > "$work/digests.arm64" &&
    MRCLAB_PURE=1 PYTHONPATH=tests "$python" -m support.proto.digests $seeds > "$work/digests.here" &&
    cmp "$work/digests.arm64" "$work/digests.here" && echo "the same digests of $(echo $seeds | wc -w) simulations"
}

simulation() {
  rm -rf "$root/out" "$work/here"
  inside /venv/bin/python -m support.mrclab run "$experiment" --clock virtual --output /out > "$work/run.log" 2>&1 &&
    PYTHONPATH=tests "$python" -m support.mrclab run "$experiment" --clock virtual --output "$work/here" > /dev/null 2>&1 &&
    PYTHONPATH=tests "$python" -m platforms.same "$root/out" "$work/here"
}

compiled() {
  inside /venv/bin/python -m mrc_host.build &&
    inside /venv/bin/python -m support.proto.digests $seeds > "$work/digests.compiled" &&
    head -1 "$work/digests.compiled" | grep -qx compiled &&
    MRCLAB_PURE=1 PYTHONPATH=tests "$python" -m support.proto.digests $seeds | tail -n +2 > "$work/digests.here" &&
    tail -n +2 "$work/digests.compiled" | cmp - "$work/digests.here" && echo "compiled, the same digests"
}

step filter tests extras/mrc_workshop/tests/test_seccomp.py tests/hosts/verbs/test_ring.py tests/switch/native/test_store.py
# How often hostile programs get to it in their seconds depends on the machine's speed. Pages are exchanged in programs of one
# thread only, and every emulated program has one of the emulator's: the part `kernel` has those cases.
memory=tests/libmrc/test_programs.py::test_a_case_of_registered_memory
exchanges="${memory}[exchanges] ${memory}[exchange_limits] ${memory}[exchange_forks]"
step libmrc tests tests/libmrc --deselect tests/libmrc/test_hostile.py --deselect "${memory}[exchange"
step digests digests
step simulation simulation
step unit tests -m "not lab and not netns and not root and not slow" tests/topo tests/proto/wire tests/switch/program
step kernel tests/platforms/arm64-kernel.sh "$work" extras/mrc_workshop/tests/test_seccomp.py tests/hosts/verbs/test_ring.py $exchanges
step compiled compiled

echo "=== summary ($(chroot "$root" uname -m), Python $python_version)"
cat "$work/summary"
[ -z "$failed" ]
