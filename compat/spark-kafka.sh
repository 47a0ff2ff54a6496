#!/usr/bin/env bash
# Spark's own Kafka connector; prints the value for spark.jars.
#   spark-kafka.sh PYTHON        a python that has pyspark, whose jars the stub is compiled against
# The jars come from Maven into $MAGNETAR_COMPAT_HOME/spark-kafka; a JDK (javac) is needed, once.
set -eu
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
home="${MAGNETAR_COMPAT_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/magnetar/compat}"
libs="$home/spark-kafka"
python="${1:?which python?}"

if [ ! -e "$libs/.complete" ]; then
  mvn -q -B -f "$here/spark-kafka/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DoutputDirectory="$libs" -DincludeScope=runtime >&2
  spark="$("$python" -c 'import os, pyspark; print(os.path.join(os.path.dirname(pyspark.__file__), "jars"))')"
  classes="$(mktemp -d)"
  trap 'rm -rf "$classes"' EXIT
  javac --release 17 -nowarn -cp "$spark/*" -d "$classes" "$here"/spark-kafka/stub/*.java >&2
  jar --create --file "$libs/token-provider-stub.jar" -C "$classes" .
  touch "$libs/.complete"
fi
(IFS=,; set -- "$libs"/*.jar; echo "$*")
