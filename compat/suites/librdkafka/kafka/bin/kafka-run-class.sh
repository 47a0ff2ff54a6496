#!/usr/bin/env bash
# Some of librdkafka's tests want a Java producer, which they start by the command of a Kafka release: this is ours.
. "$(dirname "${BASH_SOURCE[0]}")/../../../../jars.sh"
exec java -Xmx256M -XX:+UseSerialGC -cp "$CLASSPATH:$(jars kafka-client)/*" "$@"
