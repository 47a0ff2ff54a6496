#!/usr/bin/env bash
# A single-file Java program with Pulsar's client at hand.
#   pulsar-java.sh compat/clients/cross/CrossPulsar.java pulsar://HOST:PORT
#   pulsar-java.sh --install                                       only fetch the jars
# The jars come from Maven into $MAGNETAR_COMPAT_HOME/pulsar-java.
set -eu
. "$(dirname "${BASH_SOURCE[0]}")/jars.sh"
libs="$(jars pulsar-java)"
[ "${1:?which program?}" != --install ] || exit 0
exec java -Xmx256M -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$libs/*" "$@"
