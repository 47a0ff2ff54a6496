#!/usr/bin/env bash
# Apicurio Registry, a schema registry that others made, in the foreground with everything in memory.
#   apicurio.sh PORT             serves http://127.0.0.1:PORT/apis/ccompat/v7
# It comes from Maven into $MAGNETAR_COMPAT_HOME/apicurio, once (150 MB); APICURIO_VERSION 2.6 runs on Java 17, 3.x on 21.
set -eu
version="${APICURIO_VERSION:-2.6.13.Final}"
home="${MAGNETAR_COMPAT_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/magnetar/compat}/apicurio/$version"
port="${1:?which port?}"

if [ ! -e "$home/.complete" ]; then
  mkdir -p "$home"
  mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
    -Dartifact="io.apicurio:apicurio-registry-app:$version:tar.gz:all" -DoutputDirectory="$home" >&2
  tar xzf "$home/apicurio-registry-app-$version-all.tar.gz" -C "$home"
  rm "$home/apicurio-registry-app-$version-all.tar.gz"
  touch "$home/.complete"
fi
jar="$(ls "$home"/quarkus-run.jar "$home"/*-runner.jar 2>/dev/null | head -n 1)"
export QUARKUS_HTTP_HOST=127.0.0.1 QUARKUS_HTTP_PORT="$port"
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" -Xmx512m -jar "$jar"
