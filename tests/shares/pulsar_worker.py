"""A consumer of a Shared subscription as a process of its own; says the same as `tests.shares.worker` does.

    python -m tests.shares.pulsar_worker URL SUBSCRIPTION TOPIC

``acked`` is said once the client has sent it: the broker has it soon, unless one of the two is killed in that moment.
"""

from __future__ import annotations

import logging
import sys
import threading
import time

import pulsar

from tests.shares.worker import say

_AT_ONCE = 100


def main(url: str, subscription: str, topic: str) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    logging.getLogger().addHandler(logging.NullHandler())  # standard output is for what is said
    client = pulsar.Client(url, logger=logging.getLogger())
    consumer = client.subscribe(
        topic,
        subscription,
        consumer_type=pulsar.ConsumerType.Shared,
        receiver_queue_size=_AT_ONCE,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
    )
    while not ended.is_set():
        messages = []
        try:
            while len(messages) < _AT_ONCE:
                messages.append(consumer.receive(20 if messages else 200))
        except pulsar.Timeout:
            pass
        if not messages:
            continue
        say(got=[int(each.data()) for each in messages], at=time.monotonic())
        try:
            for each in messages:
                consumer.acknowledge(each)
        except pulsar.PulsarException as error:
            say(failed=str(error))
            continue
        say(acked=[int(each.data()) for each in messages], at=time.monotonic())
    client.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
