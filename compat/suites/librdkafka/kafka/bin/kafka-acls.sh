#!/usr/bin/env bash
# Some of librdkafka's tests want the acls command of a Kafka release under $KAFKA_PATH/bin: this is ours.
exec "$(dirname "${BASH_SOURCE[0]}")/../../../../kafka-tools.sh" acls "$@"
