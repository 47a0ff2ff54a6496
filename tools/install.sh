#!/usr/bin/env bash
# Make .venv and put into it exactly what constraints.txt names, then Magnetar itself, editable.
# What only the system can give (venv for Python, a Java runtime for Spark) is installed by apt-get
# when we are root; else this says what to type, and stops.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m%s\033[0m\n' "$*"; }
stop() { printf '%s\n' "$*" >&2; exit 1; }

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

# from_system WHY PACKAGE...
from_system() {
  local why=$1
  shift
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    stop "$why is missing. Please run:  sudo apt-get install -y $*   and then make again."
  fi
  say "$why is missing: apt-get install $*"
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$@" >/dev/null 2>&1 ||
    { apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -q "$@" >/dev/null; }
}

java_of() { if [ -x "${JAVA_HOME:-/nowhere}/bin/java" ]; then echo "$JAVA_HOME/bin/java"; else command -v java; fi; }

has_java() {
  local version
  version=$("$(java_of)" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -1) 2>/dev/null || return 1
  [ "${version:-0}" -ge 17 ]
}

newest_jre() { apt-cache search --names-only '^openjdk-(17|21)-jre-headless$' | sort -r | awk 'NR==1 {print $1}'; }

make_venv() {
  local python
  python=$(find_python)
  if [ -z "$python" ]; then from_system "Python 3.11, 3.12 or 3.13" python3 python3-venv; python=$(find_python); fi
  [ -n "$python" ] || stop "Python 3.11, 3.12 or 3.13 is needed; $(python3 --version 2>&1 || echo none) is here."
  "$python" -c 'import ensurepip, venv' 2>/dev/null || from_system "venv for Python" python3-venv
  say "Making .venv with $("$python" --version) ($("$python" -c 'import sys; print(sys.executable)'))"
  "$python" -m venv --clear .venv
}

suits .venv/bin/python || make_venv
has_java || from_system "A Java runtime, 17 or newer (Spark needs one)," "$(newest_jre 2>/dev/null | grep . || echo openjdk-17-jre-headless)"
say "Installing what constraints.txt names"
# Older pips, as Debian's, warn of how two packages are still built.
pip() { .venv/bin/python -W ignore -m pip --disable-pip-version-check --quiet "$@"; }
pip install --require-hashes -r constraints.txt
pip install --no-deps --no-build-isolation --editable .
say "Compiling the kernel that reads ledgers into Arrow columns"
.venv/bin/python -c 'import magnetar.pipeline.frames'
touch .venv/installed
