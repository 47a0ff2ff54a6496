"""Have a broker do much at once, one thing after the other, with an innocent client beside it; print its longest waits.

    python -m benchmarks.stalls [NAME...] [--list] [--rounds 3] [--first] [--of CHECKOUT] [--page COLUMN]

The innocent client is that of `benchmarks.attacks`. Unlike attacks, these are things that whoever operates a broker
does on any day. A name selects all stalls that begin with it. ``--of`` has the broker of another checkout do them,
which has a ``.venv`` of its own; ``--page`` keeps what was found, in a column of this name, in docs/stalls.json, and
writes docs/stalls.md. Each is done ``--rounds`` times, each time by a broker of its own on fresh data, and the median
of the longest waits counts. The status is 1 if one of them is above the bar.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.attacks.attack import Attack, Outcome, made
from benchmarks.attacks.http import asked
from benchmarks.attacks.kafka import nobody, nothing
from benchmarks.attacks.priority import before_all_else
from benchmarks.attacks.pulsar import ack, producer, sent, subscribe
from benchmarks.attacks.target import Target
from benchmarks.attacks.wires import KafkaWire, PulsarWire, entry, frame
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.messages.delete_topics_request import DeleteTopicsRequest
from magnetar.wire.kafka.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from magnetar.wire.kafka.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

MAX_WAIT_MS = 20.0
DOCS = Path(__file__).parents[1] / "docs"
KEPT, PAGE = DOCS / "stalls.json", DOCS / "stalls.md"
_CURSORS = 300
_COMPACTED_MB = 8
_HEAD = f"""# Stalls

What a client notices of much that a broker does at once for somebody else: each is done by a broker of its own, on
loopback, beside an innocent Kafka client that asks for ApiVersions every 10 ms. Its longest wait should stay below
{MAX_WAIT_MS:.0f} ms; what is above that is in bold. ([Attacks](attacks.md) are made by clients that mean harm.) Waits
are medians of some rounds, on two cores. This page is made by `python -m benchmarks.stalls --first --page COLUMN`: with
`--first` other work on the machine waits. For how long the system let the broker's event loop wait for a processor is
left out; caches and the disk are shared.

"""


def written(target: Target) -> None:
    """Prepare a topic of 1,000 partitions with a record in each."""
    target.have_topic("prey", 1000)
    with target.kafka() as client:
        client.produce("prey", list(range(1000)), b"x" * 100)
    time.sleep(2)


def delete(target: Target, _: Any) -> str:
    with KafkaWire(target) as client:
        answer = client.ask(DeleteTopicsRequest(topic_names=["prey"], timeout_ms=60_000), 5)
    return _said(answer.responses[0].error_code)


def create(target: Target, _: Any) -> None:
    target.have_topic("prey", 10_000)


def large(target: Target) -> None:
    """Prepare a topic of 10,000 partitions."""
    target.have_topic("prey", 10_000)
    time.sleep(1)


def describe(target: Target, _: Any) -> str:
    """All of a topic's partitions, in both ways that there are."""
    with KafkaWire(target) as client:
        (topic,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="prey")]), 12).topics
        found, cursor = 0, None
        while found == 0 or cursor is not None:
            question = DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name="prey")],
                cursor=None
                if cursor is None
                else Cursor(topic_name="prey", partition_index=cursor.partition_index),
            )
            answer = client.ask(question, 0)
            found += len(answer.topics[0].partitions)
            cursor = answer.next_cursor
    return "" if len(topic.partitions) == found == 10_000 else f"{len(topic.partitions)} and {found} found"


def ten_large(target: Target) -> None:
    """Prepare ten topics of 10,000 partitions."""
    for number in range(10):
        target.have_topic(f"prey{number}", 10_000)
    time.sleep(2)


def commit(target: Target, _: Any) -> str:
    """One group commits 100,000 offsets with one request."""
    places = [OffsetCommitRequestPartition(partition_index=n, committed_offset=0) for n in range(10_000)]
    topics = [OffsetCommitRequestTopic(name=f"prey{number}", partitions=places) for number in range(10)]
    question = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    with KafkaWire(target) as client:
        answer = client.ask(question, 8)
    return _said(*{row.error_code for topic in answer.topics for row in topic.partitions})


def subscribed(target: Target) -> tuple[PulsarWire, list[Any]]:
    """Prepare a topic with 300 subscriptions, each with a consumer; give their connection and the messages' ids."""
    client = PulsarWire(target)
    client.ask(producer())
    ids = [sent(client, entry(b"x"), number) for number in range(20)]
    for number in range(1, _CURSORS + 1):
        client.ask(subscribe(name=f"s{number}", consumer_id=number, initialPosition=1))
    time.sleep(3)
    return client, ids


def acknowledge(target: Target, prepared: tuple[PulsarWire, list[Any]]) -> None:
    """Every second message is acknowledged to each subscription, so each cursor has something to keep."""
    client, ids = prepared
    for number in range(1, _CURSORS + 1):
        said = ack(ids[::2])
        said.ack.consumer_id = number
        said.ack.ClearField("request_id")
        client.send(frame(said))
    time.sleep(3)
    client.close()


def keyed(target: Target) -> None:
    """Prepare a topic of 8 MB, of which 1,000 keys are left."""
    with target.kafka() as client:
        client.create_topics(["prey"], 1, {"cleanup.policy": "compact", "segment.bytes": str(4 << 20)})
        value = bytes(1000)
        batch = encode_batch([PlainRecord(b"%d" % (number % 1000), value) for number in range(500)])
        for _ in range(2 * _COMPACTED_MB):
            client.send_batch("prey", 0, batch)
    time.sleep(2)


def compact(target: Target, _: Any) -> str:
    path = "/admin/v2/persistent/public/default/prey-partition-0/compaction"
    status, _body = asked(target.http_port, "PUT", path)
    assert status < 300, status
    while True:
        time.sleep(0.2)
        told = json.loads(asked(target.http_port, "GET", path)[1])
        if told["status"] not in ("RUNNING", "NOT_RUN"):
            return "" if told["status"] == "SUCCESS" else str(told)


def many(target: Target) -> None:
    """Prepare 10,000 topics with a record in each."""
    names = [f"prey{number}" for number in range(10_000)]
    with target.kafka() as client:
        for at in range(0, len(names), 1000):
            client.create_topics(names[at : at + 1000], 1)
        for name in names:
            client.produce(name, [0], b"x" * 100)
    time.sleep(2)


def scrape(target: Target, _: Any) -> str:
    status, body = asked(target.http_port, "GET", "/metrics")
    found = body.count(b'\nkafka_log_log_logendoffset{topic="prey')
    return "" if status == 200 and found >= 10_000 else f"status {status}, {found} topics"


def _said(*codes: int) -> str:
    return " ".join(f"error {code}" for code in codes if code)


STALLS = (
    Attack("nothing is done", nothing, nobody),
    Attack("a topic of 1,000 written partitions is deleted", written, delete),
    Attack("a topic of 10,000 partitions is created", nothing, create),
    Attack("10,000 partitions are described", large, describe),
    Attack("100,000 offsets are committed", ten_large, commit),
    Attack("300 cursors are saved", subscribed, acknowledge),
    Attack("/metrics is asked of 10,000 topics", many, scrape),
    Attack("a first compaction runs", keyed, compact),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="stalls", description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--first", action="store_true", help="served before others on the machine; wants root"
    )
    parser.add_argument("--of", type=Path, help="the checkout whose broker it is")
    parser.add_argument("--page", metavar="COLUMN", help="keep what was found, and write docs/stalls.md")
    given = parser.parse_args()
    chosen = [each for each in STALLS if not given.names or each.name.startswith(tuple(given.names))]
    if given.list:
        print("\n".join(each.name for each in chosen))
        return 0
    if given.first:
        before_all_else()
    root = (given.of or DOCS.parent).resolve()
    print("| stall | longest waits, ms | growth, MB | took, s | |\n|---|---:|---:|---:|---|")
    found = {}
    for stall in chosen:
        outcomes = [made(stall, root / ".venv" / "bin" / "magnetar") for _ in range(given.rounds)]
        found[stall.name] = statistics.median(each.longest_ms for each in outcomes)
        print(_row(outcomes), flush=True)
    if given.page:
        _keep(given.page, found)
        PAGE.write_text(text(json.loads(KEPT.read_text())))
    return int(max(found.values()) > MAX_WAIT_MS)


def _row(outcomes: list[Outcome]) -> str:
    waits = ", ".join(f"{each.longest_ms:.1f}" for each in outcomes)
    last = outcomes[-1]
    return f"| {last.name} | {waits} | {last.growth_mb:+.0f} | {last.seconds:.1f} | {last.told} |"


def _keep(column: str, found: dict[str, float]) -> None:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    about = kept.setdefault(column, {"day": "", "waits_ms": {}})
    about["day"] = datetime.now(UTC).date().isoformat()
    about["waits_ms"].update(found)
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")


def text(kept: dict[str, Any]) -> str:
    """Return the page for kept waits."""
    rows = [f"| longest wait, ms, while | {' | '.join(kept)} |\n|---|{'---:|' * len(kept)}\n"]
    for stall in STALLS:
        waits = " | ".join(_wait(about["waits_ms"].get(stall.name)) for about in kept.values())
        rows.append(f"| {stall.name} | {waits} |\n")
    days = "; ".join(f"{column}: {about['day']}" for column, about in kept.items())
    return _HEAD + "".join(rows) + f"\nMade on these days: {days}.\n"


def _wait(wait_ms: float | None) -> str:
    if wait_ms is None:
        return ""
    return f"**{wait_ms:.0f}**" if wait_ms > MAX_WAIT_MS else f"{wait_ms:.0f}"


if __name__ == "__main__":
    sys.exit(main())
