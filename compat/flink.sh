#!/usr/bin/env bash
# Apache Flink in one process, against any address.
#   flink.sh compat/apps/FlinkCopy.java ...          a single-file program with Flink and its connector to Kafka at hand
#   flink.sh --install                               only fetch the jars
# The jars come from Maven into $MAGNETAR_COMPAT_HOME/flink. Warnings go to standard error.
set -eu
. "$(dirname "${BASH_SOURCE[0]}")/jars.sh"
libs="$(jars flink)"

name="${1:?which program?}"; shift
[ "$name" != --install ] || exit 0
exec java -Xmx512M -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.awt.headless=true \
  --add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED \
  --add-opens=java.base/java.util.concurrent=ALL-UNNAMED --add-opens=java.base/java.time=ALL-UNNAMED \
  -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true \
  -cp "$libs/*" "$name" "$@"
