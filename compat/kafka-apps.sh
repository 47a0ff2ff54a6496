#!/usr/bin/env bash
# What comes with Kafka and is built on its protocol, against any address.
#   kafka-apps.sh connect FILE                       a worker of Kafka Connect, distributed
#   kafka-apps.sh mirror FILE                        MirrorMaker 2
#   kafka-apps.sh compat/apps/WordCount.java ...     a single-file program with Kafka Streams at hand
#   kafka-apps.sh --install                          only fetch the jars
# The jars come from Maven into $MAGNETAR_COMPAT_HOME/kafka-apps. Warnings go to standard error.
set -eu
. "$(dirname "${BASH_SOURCE[0]}")/jars.sh"
libs="$(jars kafka-apps)"
# Connect finds its connectors in folders of their own, and does not look at its own class path for them.
mkdir -p "$libs/plugins/file"
find "$libs" -maxdepth 1 -name 'connect-file-*.jar' -exec mv {} "$libs/plugins/file/" \;

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
