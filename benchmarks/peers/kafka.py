"""Apache Kafka: one KRaft node, broker and controller, with the values of its release's server.properties."""

from __future__ import annotations

import base64
import subprocess

from benchmarks.peers.jars import java
from benchmarks.peers.server import Server, free_port
from magnetar.topics.identity import new_id

# Heap and collector as kafka-server-start.sh sets them.
_HEAP = ("-Xmx1G", "-Xms1G")
_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
)


class Kafka(Server):
    """As it comes: acknowledged records lie in the page cache."""

    name = "kafka"
    extra: tuple[str, ...] = ()
    more_listeners: tuple[str, ...] = ()
    advertised = "127.0.0.1"

    def prepare(self) -> None:
        controller = free_port()
        listeners = ",".join(
            (
                f"PLAINTEXT://127.0.0.1:{self.port}",
                *self.more_listeners,
                f"CONTROLLER://127.0.0.1:{controller}",
            )
        )
        advertised = listeners.replace("127.0.0.1", self.advertised, 1)
        settings = (
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}",
            f"listeners={listeners}",
            f"advertised.listeners={advertised}",
            "inter.broker.listener.name=PLAINTEXT",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "num.network.threads=3",
            "num.io.threads=8",
            "socket.send.buffer.bytes=102400",
            "socket.receive.buffer.bytes=102400",
            "socket.request.max.bytes=104857600",
            f"log.dirs={self.data / 'logs'}",
            "num.partitions=1",
            "num.recovery.threads.per.data.dir=2",
            "offsets.topic.replication.factor=1",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "log.retention.hours=168",
            "log.segment.bytes=1073741824",
            "log.retention.check.interval.ms=300000",
            *self.extra,
        )
        self._properties = self.data / "server.properties"
        self._properties.write_text("\n".join(settings) + "\n")
        cluster = base64.urlsafe_b64encode(new_id()).decode().rstrip("=")
        arguments = ("format", "--standalone", "-t", cluster, "-c", self._properties)
        subprocess.run(java("kafka.tools.StorageTool", *arguments), check=True, stdout=subprocess.DEVNULL)

    def command(self) -> list[str]:
        options = (*_HEAP, *_JVM, f"-Dkafka.logs.dir={self.data}")
        return java("kafka.Kafka", self._properties, options=options)


class KafkaFlushing(Kafka):
    """With every append flushed to disk before it is acknowledged."""

    name = "kafka, flush.messages=1"
    extra = ("log.flush.interval.messages=1",)
