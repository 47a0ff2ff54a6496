#!/usr/bin/env bash
# Make .venv and put into it exactly what constraints.txt names, then Magnetar itself, editable.
# What only the system can give (Python, venv for it, a Java runtime for Spark) is installed by apt-get when we are root;
# else this says what to type, all of it at once, and stops. JAVA=none goes on without Java: all but Spark works.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m%s\033[0m\n' "$*"; }
stop() { printf '%s\n' "$@" >&2; exit 1; }

suits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }

# Built with optimization, as the system's own and most others are: pyenv's are not unless told to, and take a sixth more
# of the processor for the broker's work.
is_quick() {
  "$1" -c 'import sys, sysconfig, ensurepip, venv
sys.exit(sys.base_prefix != "/usr" and "--enable-optimizations" not in (sysconfig.get_config_var("CONFIG_ARGS") or ""))' \
    2>/dev/null
}

# PYTHON if it is given; else the first of those here that is quick, else the first that will do.
find_python() {
  local python fit=()
  if [ -n "${PYTHON:-}" ] && ! suits "$PYTHON"; then
    say "PYTHON=$PYTHON is passed over: it is not Python 3.11, 3.12 or 3.13" >&2
  fi
  for python in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3 python3.13 python3.12 python3.11; do
    if command -v "$python" >/dev/null && suits "$python"; then fit+=("$python"); fi
  done
  for python in "${fit[@]}"; do
    if [ "$python" = "${PYTHON:-}" ] || is_quick "$python"; then echo "$python"; return; fi
  done
  echo "${fit[0]:-}"
}

java_of() { if [ -x "${JAVA_HOME:-/nowhere}/bin/java" ]; then echo "$JAVA_HOME/bin/java"; else command -v java; fi; }

has_java() {
  local version
  version=$("$(java_of)" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -1) 2>/dev/null || return 1
  [ "${version:-0}" -ge 17 ]
}

# The newest that Spark is made for; where apt has no lists yet there is none to choose, and Debian's own choice will do.
jre_package() {
  local newest
  newest=$(apt-cache search --names-only '^openjdk-(17|21)-jre-headless$' 2>/dev/null | sort -r | awk 'NR==1 {print $1}')
  echo "${newest:-default-jre-headless}"
}

is_venv() { suits .venv/bin/python && .venv/bin/python -m pip --version >/dev/null 2>&1; }

# What the system does not have: in each line a package of Debian's, and what it is.
missing() {
  if ! is_venv && [ -z "$python" ]; then
    echo "python3-venv Python 3.11, 3.12 or 3.13, with venv ($(python3 --version 2>/dev/null || echo no python3) is here)"
  elif ! is_venv && ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    "$python" -c 'import sys; print("python%d.%d-venv venv for %s" % (*sys.version_info[:2], sys.executable))'
  fi
  if [ "${JAVA:-}" != none ] && ! has_java; then
    echo "$(jre_package) a Java runtime, 17 or newer, for Spark (JAVA_HOME may name one; JAVA=none goes without)"
  fi
}

packages() { missing | cut -d' ' -f1 | paste -sd' '; }

# shellcheck disable=SC2046  # as many words as there are packages
apt_get() { DEBIAN_FRONTEND=noninteractive apt-get install -y -q $(packages) >/dev/null; }

from_system() {
  [ -n "$(missing)" ] || return 0
  say "Missing:"
  missing | sed -E 's/^[^ ]+ /  /'
  command -v apt-get >/dev/null || stop "Please install what is missing, and then make again."
  [ "$(id -u)" = 0 ] || stop "Please run:  sudo apt-get update && sudo apt-get install -y $(packages)" "and then make again."
  say "apt-get install $(packages)"
  apt_get 2>/dev/null || { apt-get update -q >/dev/null || true; apt_get; }
  python=$(find_python)
  [ -z "$(missing)" ] || stop "This system's packages do not bring it. Please install it otherwise, and then make again."
}

make_venv() {
  say "Making .venv with $("$python" --version) ($("$python" -c 'import sys; print(sys.executable)'))"
  "$python" -m venv --clear .venv
}

python=$(find_python)
from_system
is_venv || make_venv
say "Installing what constraints.txt names (0.7 GB to bring, 1.9 GB in .venv)"
# Older pips, as Debian's, warn of how two packages are still built.
pip() { .venv/bin/python -W ignore -m pip --disable-pip-version-check --quiet "$@"; }
pip install --require-hashes -r constraints.txt
pip install --no-deps --no-build-isolation --editable .
say "Compiling the kernel that reads ledgers into Arrow columns"
.venv/bin/python -c 'import magnetar.records.kernels.frames'
touch .venv/installed
