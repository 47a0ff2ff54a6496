#!/usr/bin/env bash
# Bring what the foreign clients need into a cache outside the repository, each once:
#   compat/install.sh [python] [java] [go] [node] [kafka-apps] [pulsar-java] [pulsar-go]       (nothing named: all)
# kcat comes from the distribution: apt-get install kcat.
set -eu
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
home="${MAGNETAR_COMPAT_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/magnetar/compat}"
mkdir -p "$home/bin"

install_python() {
  [ -e "$home/python/bin/python" ] || python3 -m venv "$home/python"
  "$home/python/bin/pip" install -q -r "$here/clients/requirements.txt"
}
install_java() { bash "$here/kafka-tools.sh" --install; }
install_go() { (cd "$here/clients/go" && go build -o "$home/bin/sarama" .); }
install_kafka-apps() { bash "$here/kafka-apps.sh" --install; }
install_pulsar-java() { bash "$here/pulsar-java.sh" --install; }
install_pulsar-go() { (cd "$here/clients/pulsar-go" && go build -o "$home/bin/pulsar-go" .); }
install_node() {
  mkdir -p "$home/node"
  cp "$here/clients/node/package.json" "$home/node/"
  (cd "$home/node" && npm install --no-package-lock --no-audit --no-fund --loglevel=error)
}

[ $# -gt 0 ] || set -- python java go node kafka-apps pulsar-java pulsar-go
for part in "$@"; do "install_$part"; done
