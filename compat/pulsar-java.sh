#!/usr/bin/env bash
# A single-file Java program with Pulsar's client at hand.
#   pulsar-java.sh compat/clients/cross/CrossPulsar.java pulsar://HOST:PORT
#   pulsar-java.sh --install                                       only fetch the jars
# The jars come from Maven into $MAGNETAR_COMPAT_HOME/pulsar-java.
set -eu
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
home="${MAGNETAR_COMPAT_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/magnetar/compat}"
libs="$home/pulsar-java"

if [ ! -e "$libs/.complete" ]; then
  mvn -q -B -f "$here/pulsar-java/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DoutputDirectory="$libs" -DincludeScope=runtime >&2
  touch "$libs/.complete"
fi
[ "${1:?which program?}" != --install ] || exit 0
exec java -Xmx256M -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$libs/*" "$@"
