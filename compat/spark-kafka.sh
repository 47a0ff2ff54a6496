#!/usr/bin/env bash
# Spark's own Kafka connector; prints the value for spark.jars.
#   spark-kafka.sh PYTHON        a python that has pyspark, whose jars the stub is compiled against
# The jars come from Maven into $MAGNETAR_COMPAT_HOME/spark-kafka; a JDK (javac) is needed, once.
set -eu
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
. "$here/jars.sh"
libs="$(jars spark-kafka)"
python="${1:?which python?}"

stub="$libs/token-provider-stub.jar"
if [ ! -e "$stub" ]; then
  spark="$("$python" -c 'import os, pyspark; print(os.path.join(os.path.dirname(pyspark.__file__), "jars"))')"
  classes="$(mktemp -d)"
  trap 'rm -rf "$classes"' EXIT
  javac --release 17 -nowarn -cp "$spark/*" -d "$classes" "$here"/spark-kafka/stub/*.java >&2
  jar --create --file "$stub.new" -C "$classes" .
  mv "$stub.new" "$stub"
fi
(IFS=,; set -- "$libs"/*.jar; echo "$*")
