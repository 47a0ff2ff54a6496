"""Settings that the environment has in the form that container images of Kafka and Pulsar take.

    KAFKA_NUM_PARTITIONS=4              num.partitions=4: of apache/kafka and Confluent
    KAFKA_CFG_NUM_PARTITIONS=4          the same: of Bitnami
    PULSAR_PREFIX_brokerDeleteInactiveTopicsEnabled=false    of apachepulsar/pulsar

An underscore is a dot, two are an underscore, three a dash. Variables that start scripts or Kubernetes set for their
own use, such as ``KAFKA_OPTS`` and ``KAFKA_PORT_9092_TCP``, are no settings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PREFIXES = ("KAFKA_CFG_", "KAFKA_", "PULSAR_PREFIX_")
_PULSARS = "PULSAR_PREFIX_"
_NO_SETTING = re.compile(
    r"KAFKA_(.*OPTS|.*LOG4J.*|JMX_.*|JVM_.*|HEAP_.*|GC_.*|DEBUG|HOME|BASE|VERSION|SCALA_VERSION|USER|GROUP"
    r"|.*SERVICE_(HOST|PORT).*|PORT|PORT_\d.*|.*_PORT_\d+_.*|ENABLE_KRAFT|KRAFT_CLUSTER_ID|CLUSTER_ID|CLASSPATH)"
)
_KAFKAS = re.compile(r"KAFKA_(?:CFG_)?([A-Z0-9_]+)")
_PULSARS_NAME = re.compile(_PULSARS + r"([A-Za-z0-9._-]+)")


def image_settings(environment: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return texts by the settings' names, and the variables with a prefix that name none."""
    found: dict[str, str] = {}
    odd: list[str] = []
    for variable, text in environment.items():
        if not variable.startswith(PREFIXES) or _NO_SETTING.fullmatch(variable):
            continue
        if match := _PULSARS_NAME.fullmatch(variable):
            found[match[1]] = text
        elif match := _KAFKAS.fullmatch(variable):
            found[_kafkas_name(match[1])] = text
        else:
            odd.append(variable)
    return found, tuple(odd)


def _kafkas_name(variable: str) -> str:
    meant = {1: ".", 2: "_", 3: "-"}
    return re.sub(r"_+", lambda run: meant.get(len(run[0]), run[0]), variable).lower()
