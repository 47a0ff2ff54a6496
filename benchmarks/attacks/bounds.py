"""What one client may have the broker do later: transactions over very many partitions."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.attacks.asked import of, part
from benchmarks.attacks.attack import Attack
from benchmarks.attacks.target import Target
from benchmarks.attacks.wires import KafkaWire
from magnetar.wire.kafka.messages import ApiKey

_TOPIC_PARTITIONS = 10_000
_PATIENCE_ASKS = 100_000
_TXN = "attacker"


def topics(target: Target, *, count: int) -> list[str]:
    """Prepare so many topics of 10,000 partitions, which nobody opens."""
    return [target.have_topic(f"wide{number}", _TOPIC_PARTITIONS) for number in range(count)]


def transaction(target: Target, names: list[str]) -> str:
    """Add all partitions to one transaction, abort it, and wait until that is done."""
    one = part(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxnTopic")
    with KafkaWire(target) as client:
        begin = of(ApiKey.INIT_PRODUCER_ID)(transactional_id=_TXN, transaction_timeout_ms=900_000)
        while (producer := client.ask(begin, 4)).error_code:
            pass
        who = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
        for name in names:
            added = of(ApiKey.ADD_PARTITIONS_TO_TXN)(
                v3_and_below_transactional_id=_TXN,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[one(name=name, partitions=[*range(_TOPIC_PARTITIONS)])],
            )
            while (
                client.ask(added, 3)
                .results_by_topic_v3_and_below[0]
                .results_by_partition[0]
                .partition_error_code
            ):
                pass
        client.ask(of(ApiKey.END_TXN)(transactional_id=_TXN, committed=False, **who), 3)
        state: Any = None
        for _ in range(_PATIENCE_ASKS):
            asked = of(ApiKey.DESCRIBE_TRANSACTIONS)(transactional_ids=[_TXN])
            state = client.ask(asked, 0).transaction_states[0].transaction_state
            if state.startswith("Complete"):
                break
    return str(state)


def _transaction(count: int) -> Attack:
    name = f"kafka: one transaction of {count * _TOPIC_PARTITIONS:,} partitions"
    return Attack(name, partial(topics, count=count), transaction)


ATTACKS = (_transaction(1), _transaction(6))
