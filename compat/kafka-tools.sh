#!/usr/bin/env bash
# Kafka's own command-line tools, and Java programs, against any address.
#   kafka-tools.sh topics --bootstrap-server HOST:PORT --list      a tool, by its release name without "kafka-" and ".sh"
#   kafka-tools.sh compat/clients/JavaClient.java --bootstrap ...  a single-file Java program with Kafka's client at hand
#   kafka-tools.sh --install                                       only fetch the jars
# The jars come from Maven into $MAGNETAR_COMPAT_HOME: Java programs get the newest client (kafka-client), the tools those
# that are published as a package (kafka-tools; an existing directory can be named with KAFKA_LIBS).
set -eu
. "$(dirname "${BASH_SOURCE[0]}")/jars.sh"
case "$1" in
  *.java) libs="$(jars kafka-client)" ;;
  *)      libs="${KAFKA_LIBS:-$(jars kafka-tools)}" ;;
esac

tools=org.apache.kafka.tools
name="${1:?which tool?}"; shift
case "$name" in
  --install)              jars kafka-client > /dev/null; exit 0 ;;
  *.java)                 main="$name" ;;
  *.*)                    main="$name" ;;
  topics)                 main=$tools.TopicCommand ;;
  configs)                main=$tools.ConfigCommand ;;
  console-producer)       main=$tools.ConsoleProducer ;;
  console-consumer)       main=$tools.consumer.ConsoleConsumer ;;
  consumer-groups)        main=$tools.consumer.group.ConsumerGroupCommand ;;
  groups)                 main=$tools.GroupsCommand ;;
  get-offsets)            main=$tools.GetOffsetShell ;;
  delete-records)         main=$tools.DeleteRecordsCommand ;;
  log-dirs)               main=$tools.LogDirsCommand ;;
  broker-api-versions)    main=$tools.BrokerApiVersionsCommand ;;
  verifiable-producer)    main=$tools.VerifiableProducer ;;
  verifiable-consumer)    main=$tools.VerifiableConsumer ;;
  producer-perf-test)     main=$tools.ProducerPerformance ;;
  consumer-perf-test)     main=$tools.ConsumerPerformance ;;
  e2e-latency)            main=$tools.EndToEndLatency ;;
  cluster)                main=$tools.ClusterTool ;;
  acls)                   main=$tools.AclCommand ;;
  delegation-tokens)      main=$tools.DelegationTokenCommand ;;
  *) echo "unknown tool $name" >&2; exit 2 ;;
esac
exec java ${KAFKA_HEAP_OPTS:--Xmx256M} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$libs/*" "$main" "$@"
