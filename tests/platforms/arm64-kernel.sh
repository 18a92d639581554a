#!/bin/sh
# Runs tests under arm64's own kernel, which qemu emulates as a whole machine: qemu's user mode takes no filter of system
# calls. The root of `arm64.sh` becomes the memory file system from which Debian's kernel starts.
#
#   arm64-kernel.sh WORK TEST...           as root; WORK is the folder with `root`, which arm64.sh has made
#
# The console is in WORK/kernel/console. Exit status: 0, 1 (a test failed, or the machine did not come to its end within
# ARM64_MINUTES, by default 30), 2 (a program is missing).
set -eu

work=$(realpath "$1")/kernel
root=$(realpath "$1")/root
shift
for program in qemu-system-aarch64 cpio; do
  command -v "$program" > /dev/null || {
    echo "arm64-kernel: $program is missing: apt-get install qemu-system-arm cpio" >&2
    exit 2
  }
done

mkdir -p "$work"
if [ ! -e "$work/package/boot" ]; then
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # shellcheck disable=SC2016
  chroot "$root" sh -c 'apt-get update -qq && cd /root && apt-get download -qq "$(apt-cache depends linux-image-cloud-arm64 |
    sed -n "s/.*Depends: \(linux-image-[0-9][^ ]*\)/\1/p" | head -1)"'
  dpkg -x "$root"/root/linux-image-*.deb "$work/package"
  rm "$root"/root/linux-image-*.deb
fi

rm -rf "$work/added"
mkdir -p "$work/added/proc" "$work/added/sys" "$work/added/dev" "$work/added/tmp"
cat > "$work/added/init" <<INIT
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm
for folder in /tmp /dev/shm; do mount -t tmpfs tmpfs \$folder; done
ip link set lo up
export HOME=/root LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export MRCLAB_PURE=1 PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=tests NO_COLOR=1 TERM=dumb
cd /mrclab
echo "=== \$(uname -srm)"
/venv/bin/python -m pytest -q -rs -p no:cacheprovider $* 2>&1
echo "=== exit code \$?"
echo o > /proc/sysrq-trigger
sleep 60
INIT
chmod 755 "$work/added/init"
(
  cd "$root"
  find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./tmp -o -path ./wheels -o -path ./out -o -path ./lib64 \
    -o -path ./usr/share/doc -o -path ./usr/share/locale -o -path ./usr/share/man -o -path ./usr/lib/x86_64-linux-gnu \
    -o -path ./usr/lib/gcc-cross -o -path ./usr/aarch64-linux-gnu -o -path ./var/cache -o -path ./var/lib/apt \
    -o -path ./root/.cache \) -prune -o -print0 | cpio -0 -o -H newc --quiet
  cd "$work/added"
  find . -print0 | cpio -0 -o -H newc --quiet
) > "$work/memory.cpio"

: > "$work/console"
timeout "$((${ARM64_MINUTES:-30} * 60))" qemu-system-aarch64 -M virt -cpu cortex-a72 -smp 2 -m 4096 -display none -monitor none \
  -serial "file:$work/console" -no-reboot -kernel "$work"/package/boot/vmlinuz-* -initrd "$work/memory.cpio" \
  -append "console=ttyAMA0 quiet rdinit=/init panic=-1" < /dev/null || true
sed -n '/^=== Linux/,$p' "$work/console"
tr -d '\r' < "$work/console" | grep -qx "=== exit code 0"
