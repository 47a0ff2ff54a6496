"""A member of a share group as a process of its own, that says in lines of JSON what it got, and what was acknowledged.

    python -m tests.shares.worker BOOTSTRAP GROUP TOPIC

Times are of the machine's monotonic clock, which all processes share: ``got`` is taken before it is asked what came,
``acked`` once the broker has said so. Ends by being killed, or with its standard input.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from confluent_kafka import KafkaException, ShareConsumer


def main(bootstrap: str, group: str, topic: str) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            # Otherwise librdkafka 2.16 waits for good for a coordinator that went from the list of brokers.
            "metadata.recovery.strategy": "none",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    while not ended.is_set():
        messages = [each for each in consumer.poll(0.2) if each.error() is None]
        if not messages:
            continue
        say(got=[int(each.value()) for each in messages], at=time.monotonic())
        for each in messages:
            consumer.acknowledge(each)
        try:
            outcome = consumer.commit_sync(30.0)
        except KafkaException as error:
            say(failed=str(error))
            continue
        kept = {(each.topic, each.partition) for each, error in outcome.items() if error is None}
        acked = [int(each.value()) for each in messages if (each.topic(), each.partition()) in kept]
        say(acked=acked, at=time.monotonic())
    consumer.close()


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
