#!/bin/sh
# Makes a fresh Debian 12 (or, with --reference, Ubuntu 22.04) a machine for mrclab. Run as root; again does no harm.
#
#   vagrant/provision.sh [--reference]
#
# It does what a user of that system would do: packages by apt, then `make setup` as that user.
set -eu

checkout=${MRCLAB_CHECKOUT:-/mrclab}
user=${MRCLAB_USER:-vagrant}
export DEBIAN_FRONTEND=noninteractive

if [ "${1:-}" = --reference ] && [ "$(dpkg --print-architecture)" != amd64 ]; then
  echo "provision.sh: --reference installs p4lang's packages, which exist for amd64 only, and this machine is" \
    "$(dpkg --print-architecture); leave --reference out, or build BMv2 and p4c from source (docs/reference-parts.md)" >&2
  exit 1
fi

# A box that has just come up may be at updates of its own.
apt-get update -qq -o DPkg::Lock::Timeout=300
apt-get install -y -qq -o DPkg::Lock::Timeout=300 --no-install-recommends make sudo git ca-certificates bash-completion

reference=
if [ "${1:-}" = --reference ]; then
  reference=yes
  # p4lang's packages, as their READMEs say.
  # shellcheck disable=SC1091
  . /etc/os-release
  apt-get install -y -qq --no-install-recommends curl gpg
  source="download.opensuse.org/repositories/home:/p4lang/xUbuntu_${VERSION_ID}"
  curl -fsSL "https://$source/Release.key" | gpg --dearmor --yes -o /etc/apt/trusted.gpg.d/home_p4lang.gpg
  echo "deb https://$source/ /" > /etc/apt/sources.list.d/home:p4lang.list
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends p4lang-p4c p4lang-bmv2
  # Ubuntu 22.04's own Python is 3.10, and mrclab needs 3.11, which its archive has beside it. Mininet is of pure Python.
  apt-get install -y -qq --no-install-recommends python3.11 python3.11-venv python3.11-dev
fi

chown -R "$user:" "$checkout"
if [ -n "$reference" ]; then
  packages=$(sed -n 's/^APT_PACKAGES := //p' "$checkout/Makefile" | sed 's/python3-venv/python3.11-venv/; s/python3-dev/python3.11-dev/')
  sudo -u "$user" -H make -C "$checkout" setup PYTHON=/usr/bin/python3.11 "APT_PACKAGES=$packages" \
    "APT_NEEDED=python3.11-venv gcc libc6-dev"
else
  sudo -u "$user" -H make -C "$checkout" setup
fi

# A login shell starts in the checkout and has its commands in PATH.
cat > /etc/profile.d/mrclab.sh <<PROFILE
PATH="$checkout/.venv/bin:\$PATH"
case \$- in *i*) cd "$checkout" 2>/dev/null || true ;; esac
PROFILE
sudo -u "$user" _MRCLAB_COMPLETE=source_bash "$checkout/.venv/bin/mrclab" > /etc/bash_completion.d/mrclab
cat > /etc/motd <<'MOTD'

mrclab: a laboratory for MRC (Multipath Reliable Connection). You are in its checkout; try:

  make demo                    switches, hosts, failures, and a report of what happened
  mrclab up && mrclab status   a lab of your own; mrclab sh, mrclab run ring_all_reduce, mrclab down
  mrclab --help                everything else; the pages are in docs/

Reports are in results/: `python3 -m http.server 8000 -d results` shows them at http://127.0.0.1:8000 outside.
The live view (`make web-assets` once): `mrclab web --host 0.0.0.0`, with 127.0.0.1 for 0.0.0.0
in the address that it prints.
MOTD
if [ -n "$reference" ]; then
  cat >> /etc/motd <<'MOTD'
BMv2 and p4c are here, too:  mrclab up bmv2-tiny --compiler p4c   (docs/reference-parts.md)
MOTD
fi
