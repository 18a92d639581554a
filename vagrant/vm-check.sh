#!/bin/sh
# Proves `vagrant/provision.sh` without Vagrant: a Debian 12 disk, booted under qemu, provisioned, and used.
#
#   make vm-check                          as root (debootstrap asks for it)
#
# In the machine: vagrant/provision.sh, `make demo` as the user vagrant, and the tests marked root. Console, report and the
# exit code of each step are copied to build/vm. It has this machine's certificate authorities, two cores and 4 GB.
# Under KVM if a guest comes up under it within VM_PATIENCE seconds, else emulated, some five times slower. VM_SUITE, VM_MIRROR,
# VM_ACCEL (kvm or tcg), VM_MINUTES and VM_TESTS say otherwise.
set -eu

cd "$(dirname "$0")/.."
suite=${VM_SUITE:-bookworm}
mirror=${VM_MIRROR:-http://deb.debian.org/debian}
patience=${VM_PATIENCE:-90}
tests=${VM_TESTS:-tests/lab/test_namespaces.py}
work=$PWD/build/vm
root=$work/root
disk=$work/disk.img

for program in debootstrap qemu-system-x86_64 mke2fs debugfs git; do
  command -v "$program" > /dev/null || {
    echo "vm-check: $program is missing: apt-get install debootstrap qemu-system-x86 e2fsprogs git" >&2
    exit 2
  }
done
[ "$(id -u)" = 0 ] || { echo "vm-check: debootstrap needs root" >&2; exit 2; }

if command -v vagrant > /dev/null; then vagrant validate --ignore-provider; fi

mkdir -p "$work"
if [ ! -e "$work/base.done" ]; then
  rm -rf "$root"
  echo "vm-check: making a $suite system"
  debootstrap --variant=minbase \
    --include=linux-image-cloud-amd64,systemd-sysv,systemd-resolved,udev,dbus,kmod,iproute2,sudo,ca-certificates,procps \
    "$suite" "$root" "$mirror" > "$work/debootstrap.log" 2>&1
  : > "$work/base.done"
fi

echo "vm-check: furnishing it"
rm -rf "$root/mrclab" "$root/check"
mkdir -p "$root/mrclab" "$root/check"
git ls-files -z | xargs -0 cp --parents -t "$root/mrclab"
cp /etc/ssl/certs/ca-certificates.crt "$root/check/authorities.crt"
echo mrclab > "$root/etc/hostname"
printf '127.0.0.1 localhost mrclab\n::1 localhost\n' > "$root/etc/hosts"
echo '/dev/vda / ext4 defaults 0 1' > "$root/etc/fstab"
chroot "$root" sh -c 'id vagrant > /dev/null 2>&1 || useradd -m -s /bin/bash vagrant'
echo 'vagrant ALL=(ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/vagrant"
printf '[Match]\nName=e*\n[Network]\nDHCP=yes\n' > "$root/etc/systemd/network/all.network"
for unit in systemd-networkd systemd-resolved; do chroot "$root" systemctl enable -q "$unit" 2> /dev/null; done
cat > "$root/check/run.sh" <<RUN
#!/bin/sh
# Each step's exit code goes into /check/steps.
step() {
  name=\$1
  shift
  began=\$(date +%s)
  echo "=== \$name"
  "\$@"
  code=\$?
  echo "\$name \$code \$((\$(date +%s) - began))s" | tee -a /check/steps
  return \$code
}
echo "=== up"
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
for _ in \$(seq 60); do getent hosts deb.debian.org > /dev/null && break; sleep 1; done
cat /check/authorities.crt >> /etc/ssl/certs/ca-certificates.crt
export PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
echo "Defaults env_keep += \"PIP_CERT SSL_CERT_FILE\"" > /etc/sudoers.d/authorities
# An emulated machine does not start two labs at once within their time.
marks=root
[ "\$(systemd-detect-virt)" = kvm ] || marks="root and not slow"
step provision sh /mrclab/vagrant/provision.sh &&
  step login sudo -u vagrant bash -lic '[ "\$PWD" = /mrclab ] && mrclab --help > /dev/null' &&
  step demo sudo -u vagrant -i make -C /mrclab demo &&
  step tests sh -c "cd /mrclab && .venv/bin/python -m pytest -q -x -m '\$marks' $tests"
sync
systemctl poweroff
RUN
cat > "$root/etc/systemd/system/check.service" <<'UNIT'
[Unit]
After=network-online.target multi-user.target
Wants=network-online.target
[Service]
Type=oneshot
ExecStart=/bin/sh /check/run.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
[Install]
WantedBy=default.target
UNIT
chroot "$root" systemctl enable -q check 2> /dev/null
# A login prompt would take the console away from it, and Debian's own updates the lock of apt.
chroot "$root" systemctl mask -q serial-getty@ttyS0 apt-daily.timer apt-daily-upgrade.timer 2> /dev/null

rm -f "$disk"
truncate -s 8G "$disk"
mke2fs -q -t ext4 -d "$root" "$disk"
kernel=$(find "$root/boot" -name 'vmlinuz-*' | sort | tail -1)
initrd=$(find "$root/boot" -name 'initrd.img-*' | sort | tail -1)

# boot ACCELERATOR CPU MINUTES: runs the machine to its end; 1 if it has not come up after $patience seconds.
boot() {
  echo "vm-check: booting ($1); the console is in build/vm/console.log"
  : > "$work/console.log"
  began=$(date +%s)
  timeout "$(($3 * 60))" qemu-system-x86_64 -machine q35 -accel "$1" -cpu "$2" -smp 2 -m 4096 \
    -display none -monitor none -serial "file:$work/console.log" -no-reboot \
    -kernel "$kernel" -initrd "$initrd" -append "root=/dev/vda rw console=ttyS0 quiet net.ifnames=0" \
    -drive "file=$disk,format=raw,if=virtio,cache=unsafe" -nic user,model=virtio-net-pci < /dev/null &
  machine=$!
  trap 'kill "$machine" 2> /dev/null' EXIT
  up=
  while kill -0 "$machine" 2> /dev/null; do
    if [ -z "$up" ]; then
      if grep -q "^=== up" "$work/console.log"; then
        up=yes
      elif [ $(($(date +%s) - began)) -ge "$patience" ]; then
        kill "$machine"
      fi
    fi
    sleep 1
  done
  wait "$machine" || true
  trap - EXIT
  [ -n "$up" ]
}

accel=${VM_ACCEL:-}
if [ -z "$accel" ] && [ -d /sys/module/kvm_pvm ]; then
  accel=tcg
  echo "vm-check: KVM is PVM here, which runs only kernels that are made for it: the machine is emulated, which takes an" \
    "hour or two"
fi
if [ -z "$accel" ] && ! [ -w /dev/kvm ]; then
  accel=tcg
  echo "vm-check: no KVM here: the machine is emulated, which takes an hour or two"
fi
if [ "${accel:-kvm}" = kvm ] && ! boot kvm host "${VM_MINUTES:-30}"; then
  [ -z "$accel" ] || { echo "vm-check: the machine did not come up within $patience s; see build/vm/console.log" >&2; exit 1; }
  accel=tcg
  echo "vm-check: under KVM the machine did not come up within $patience s (is this a virtual machine itself?): it is emulated," \
    "which takes an hour or two"
fi
if [ "$accel" = tcg ]; then
  patience=600
  # The least CPU that wheels on PyPI are made for (x86-64-v2): what is newer only costs time to emulate.
  boot tcg,thread=multi,tb-size=1024 Nehalem "${VM_MINUTES:-150}" || {
    echo "vm-check: the machine did not come up within $patience s; see build/vm/console.log" >&2
    exit 1
  }
fi

rm -rf "$work/results" "$work/steps"
debugfs -R "dump /check/steps $work/steps" "$disk" 2> /dev/null
debugfs -R "rdump /mrclab/results $work" "$disk" 2> /dev/null || true
echo "vm-check: $(($(date +%s) - began)) s in the machine"
cat "$work/steps"
for step in provision login demo tests; do
  grep -q "^$step 0 " "$work/steps" || { echo "vm-check: $step failed; see build/vm/console.log" >&2; exit 1; }
done
echo "vm-check: good; reports in build/vm/results"
