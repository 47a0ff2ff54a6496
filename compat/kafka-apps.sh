#!/usr/bin/env bash
# What comes with Kafka and is built on its protocol, against any address.
#   kafka-apps.sh connect FILE                       a worker of Kafka Connect, distributed
#   kafka-apps.sh mirror FILE                        MirrorMaker 2
#   kafka-apps.sh compat/apps/WordCount.java ...     a single-file program with Kafka Streams at hand
#   kafka-apps.sh --install                          only fetch the jars
# The jars come from Maven into $MAGNETAR_COMPAT_HOME/kafka-apps. Warnings go to standard error.
set -eu
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
home="${MAGNETAR_COMPAT_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/magnetar/compat}"
libs="$home/kafka-apps"

if [ ! -e "$libs/.complete" ]; then
  mvn -q -B -f "$here/kafka-apps/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
    -DoutputDirectory="$libs" -DincludeScope=runtime >&2
  # Connect finds its connectors in folders of their own, and does not look at its own class path for them.
  mkdir -p "$libs/plugins/file"
  mv "$libs"/connect-file-*.jar "$libs/plugins/file/"
  touch "$libs/.complete"
fi

name="${1:?which application?}"; shift
case "$name" in
  --install) exit 0 ;;
  --plugins) echo "$libs/plugins"; exit 0 ;;
  connect)   main=org.apache.kafka.connect.cli.ConnectDistributed ;;
  mirror)    main=org.apache.kafka.connect.mirror.MirrorMaker ;;
  *.java)    main="$name" ;;
  *) echo "unknown application $name" >&2; exit 2 ;;
esac
exec java -Xmx256M -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.awt.headless=true \
  -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.showDateTime=true \
  -cp "$libs/*" "$main" "$@"
