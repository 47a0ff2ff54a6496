#!/usr/bin/env python3
"""Cross tests: what each stock client writes, every client of both protocols reads.

    compat/run_cross.py                                 all writers, formats and codecs, on a fresh broker
    compat/run_cross.py --writer librdkafka --format pulsar --codec lz4
    compat/run_cross.py --place cluster                 on a cluster; proxy: through a proxy in front of it
    compat/run_cross.py --peers                         the same checks within Kafka and within Pulsar

For every (writer, entry format, codec) a topic is written, batched and then one by one. Each reader must see every
field of every record as docs/entry-formats.md says, and start again in the middle, at a place that it was told. The
broker's own `magnetar explain` must say the same id of each offset. Results go to compat/results/cross.json. Ends with
status 1 when anything differs, unless the same clients differ with Kafka or Pulsar itself (--peers).
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from broker import standalone
from cross import records as written
from cross.clients import KINDS, Client, Kind, Refused
from cross.views import differences, kafka_of_kafka, kafka_of_pulsar, pulsar_of_kafka, pulsar_of_pulsar, shown
from halves import pair_of
from places import PLACES, cluster
from run import HERE
from versions import version

RESULTS = HERE / "results" / "cross.json"
FORMATS = ("kafka", "mixed_kafka", "pulsar")
VIEWS = {
    ("kafka", "kafka"): kafka_of_kafka,
    ("kafka", "pulsar"): pulsar_of_kafka,
    ("pulsar", "kafka"): kafka_of_pulsar,
    ("pulsar", "pulsar"): pulsar_of_pulsar,
}
"""What a record is (second) for who reads, (first) by who wrote."""


class Run:
    """One broker's clients, and what came of each pair of them."""

    def __init__(
        self,
        clients: Mapping[str, Client],
        addresses: Mapping[str, str],
        broker: str,
        data: Sequence[Path] = (),
        peers: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.clients = clients
        self.addresses = addresses
        self.broker = broker
        self.data = data
        """The directories of brokers of ours, each of which may be asked what it knows."""
        self.found: list[dict[str, Any]] = []
        self._fails_with_peers = {pair_of(each) for each in peers if not each["ok"]}

    @property
    def is_ours(self) -> bool:
        return self.broker == "magnetar"

    def report(self, test: str, cell: str, writer: str, reader: str, problem: str) -> None:
        """Note and print the outcome of one cell; ``problem`` is empty when all was as it should be."""
        each = {
            "test": test,
            "cell": cell,
            "writer": writer,
            "reader": reader,
            "ok": not problem,
            "detail": problem,
        }
        each["with_peers"] = pair_of(each) not in self._fails_with_peers
        self.found.append(each)
        if problem:
            word = "FAIL" if each["with_peers"] else "as with Kafka or Pulsar"
            print(f"{word} {test} {cell} {writer} -> {reader}: {problem}", flush=True)

    def readers(self, writer: Kind) -> Iterator[Client]:
        """Who can read what it wrote: on ours everybody, on a peer the clients of its protocol."""
        return (c for c in self.clients.values() if self.is_ours or c.kind.protocol == writer.protocol)

    def create(self, topic: str, entry_format: str) -> None:
        """Create a topic as a Kafka client does; a Pulsar broker creates its own."""
        if self.broker != "pulsar":
            create_topic(
                self.addresses["kafka"], topic, {"entry.format": entry_format} if self.is_ours else {}
            )

    # ---- what one wrote all read ----

    def cell(self, writer: Client, entry_format: str, codec: str) -> None:
        """Write a topic with one client, format and codec, batched and then one by one; have every client read it."""
        if writer.kind.protocol == "kafka":
            records = written.kafka_records(writer.kind.name)
            self.pair("records", writer, entry_format, codec, records, records)
            return
        batched, alone = (
            written.pulsar_messages(writer.kind.name, batched=batched) for batched in (True, False)
        )
        self.pair("records", writer, entry_format, codec, batched, alone)
        self.pair("empty", writer, entry_format, codec, [], written.empty_messages(writer.kind.name))

    def pair(
        self,
        test: str,
        writer: Client,
        entry_format: str,
        codec: str,
        batched: list[written.Record],
        alone: list[written.Record],
    ) -> None:
        """Write both lists to one topic, and let all read them."""
        name, cell = writer.kind.name, f"{entry_format}/{codec}"
        topic = f"cross-{test}-{name}-{entry_format}-{codec}"
        self.create(topic, entry_format)
        places: list[Any] = []
        try:
            for records, together in ((batched, True), (alone, False)):
                if records:
                    places += writer.write(named(writer, topic), records, codec=codec, batched=together)
        except Refused as error:
            self.report(test, cell, name, "-", str(error))
            return
        wrote = [*batched, *alone]
        ids = self.ids(topic, len(wrote))
        self.report(test, cell, name, name + " (places)", unlike(writer.kind, places, ids))
        for reader in self.readers(writer.kind):
            self.report(
                test, cell, name, reader.kind.name, self.reads(reader, writer.kind, topic, wrote, ids)
            )

    def reads(
        self, reader: Client, writer: Kind, topic: str, wrote: Sequence[written.Record], ids: Sequence[str]
    ) -> str:
        """What is wrong with what a reader sees, from the beginning and from places inside; empty when nothing is."""
        view = VIEWS[writer.protocol, reader.kind.protocol]
        wanted = [view(record) for record in wrote]
        if "null value" in reader.kind.cannot_tell:
            wanted = [{**each, "value": each["value"] or ""} for each in wanted]
        try:
            got = reader.read(named(reader, topic), len(wanted))
            if problem := differences(in_order(got, writer), wanted, reader.kind.cannot_tell):
                return problem
            if problem := unlike(reader.kind, [each["place"] for each in got], ids):
                return problem
            for start in (1, len(wanted) // 2 + 1):
                expected = wanted[start : start + 4]
                rest = reader.read(named(reader, topic), len(expected), got[start]["place"])
                problem = differences(in_order(rest, writer), expected, reader.kind.cannot_tell)
                if problem or rest[0]["place"] != got[start]["place"]:
                    return f"from {got[start]['place']}: {problem or rest[0]['place']}"
        except Refused as error:
            return str(error)
        return ""

    def ids(self, topic: str, count: int) -> list[str]:
        """What the broker says: the message id of each offset. A peer knows only one of the two."""
        return message_ids(self.data, topic, count) if self.is_ours else []

    # ---- messages in pieces, and messages passed on ----

    def chunks(self, writer: Client) -> None:
        """A message in chunks: all clients get it whole, and agree on what comes after."""
        topic, data = f"cross-chunks-{writer.kind.name}", written.big(written.CHUNKED)
        self.create(topic, "kafka")
        messages = [written.pulsar(data, key="chunked"), written.pulsar(b"after", key="after")]
        try:
            writer.write(named(writer, topic), messages, codec="none", batched=False, chunked=True)
        except Refused as error:
            self.report("chunks", "-", writer.kind.name, "-", str(error))
            return
        for reader in self.readers(writer.kind):
            try:
                problem = whole(reader, topic, data)
            except Refused as error:
                problem = str(error)
            self.report("chunks", "-", writer.kind.name, reader.kind.name, problem)

    def relay(self, source: Client, relay: Client) -> None:
        """What a Pulsar client reads and passes on comes to Kafka's clients with every header, whatever it is."""
        first, second = f"cross-relay-from-{relay.kind.name}", f"cross-relay-by-{relay.kind.name}"
        wrote = [each for each in written.kafka_records(source.kind.name) if each["headers"]]
        wrote = [each for each in wrote if each["time"] and len(each["value"]) < 1000]
        for topic in (first, second):
            self.create(topic, "kafka")
        try:
            source.write(first, wrote, codec="lz4", batched=True)
            passed = relay.read(named(relay, first), len(wrote))
            relay.write(named(relay, second), passed, codec="lz4", batched=True)
        except Refused as error:
            self.report("relay", "-", relay.kind.name, "-", str(error))
            return
        for reader in self.clients.values():
            if reader.kind.protocol == "kafka":
                got = reader.read(second, len(wrote))
                problem = differences(got, [kafka_of_kafka(each) for each in wrote])
                self.report("relay", "-", relay.kind.name, reader.kind.name, problem)


def named(client: Client, topic: str) -> str:
    """The topic's name as this client's half calls it."""
    return topic if client.kind.protocol == "kafka" else f"persistent://public/default/{topic}"


def in_order(got: list[written.Record], writer: Kind) -> list[written.Record]:
    """Properties have no order; as headers they are compared sorted."""
    if writer.protocol == "kafka" or not got or "headers" not in got[0]:
        return got
    return [{**each, "headers": sorted(each["headers"])} for each in got]


def unlike(kind: Kind, places: Sequence[Any], ids: Sequence[str]) -> str:
    """Where a client's places are not the broker's: offsets count from 0, ids are those that the broker tells."""
    if kind.protocol == "kafka":
        return "" if list(places) == list(range(len(places))) else f"offsets {list(places)[:20]}"
    told = [place.replace(":-1", ":0") for place in places]
    wrong = [
        (offset, *pair) for offset, pair in enumerate(zip(told, ids, strict=False)) if pair[0] != pair[1]
    ]
    return f"offset {wrong[0][0]} is {wrong[0][1]}, the broker says {wrong[0][2]}" if wrong else ""


def whole(reader: Client, topic: str, data: bytes) -> str:
    """What is wrong with a chunked message and the one after it; for Kafka it is where its last chunk is."""
    got = reader.read(named(reader, topic), 2)
    wanted = [{"value": shown(written.b64(data))}, {"value": shown(written.b64(b"after"))}]
    problem = differences([{"value": each["value"]} for each in got], wanted)
    if not problem and reader.kind.protocol == "kafka" and not 1 <= got[0]["place"] == got[1]["place"] - 1:
        return f"offsets {[each['place'] for each in got]}"
    return problem


# ---- brokers and what they are asked ----


def create_topic(bootstrap: str, topic: str, config: Mapping[str, str]) -> None:
    """Create a topic of one partition with Kafka's admin client."""
    from confluent_kafka.admin import AdminClient, NewTopic

    wanted = NewTopic(topic, 1, config=dict(config))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([wanted])[topic].result(30)


def message_ids(data: Sequence[Path], topic: str, count: int) -> list[str]:
    """What `magnetar explain` tells of each offset, on the broker that has the topic: ledger:entry:batch index."""
    sys.path.insert(0, str(HERE.parent / "src"))
    from magnetar.admin.client import ask
    from magnetar.admin.errors import AdminError
    from magnetar.admin.explain import Explained

    ids: list[str] = []
    waiting = list(data)
    while len(ids) < count:
        try:
            told = ask(waiting[0], "explain", topic=topic, partition=0, offset=len(ids))
        except AdminError:
            waiting.pop(0)
            if not waiting:
                raise
            continue
        assert isinstance(told, Explained)
        ledger, entry, _, index = told.message_id.split(":")
        ids.append(f"{ledger}:{entry}:{index}")
    return ids


def started(stack: ExitStack, kinds: Sequence[Kind], addresses: Mapping[str, str]) -> dict[str, Client]:
    """Start the clients of the protocols that are served, fetching what they need."""
    clients = {}
    for kind in kinds:
        if kind.protocol in addresses:
            subprocess.run([str(HERE / "install.sh"), kind.needs], check=True)
            clients[kind.name] = Client(kind, addresses)
            stack.callback(clients[kind.name].close)
    return clients


@contextmanager
def ours(place: str) -> Iterator[tuple[dict[str, str], list[Path]]]:
    """Fresh brokers of ours: where clients begin, by protocol, and the brokers' directories."""
    quickly = "group.initial.rebalance.delay.ms=0"
    if place != "standalone":
        with cluster(place, quickly) as (servers, addresses):
            yield addresses, [each.data for each in servers.brokers]
        return
    with tempfile.TemporaryDirectory(prefix="magnetar-cross-") as data:
        directory = Path(data) / "data"
        with standalone(quickly, protocols=("pulsar", "http"), data=directory) as ready:
            yield dict(pair.split("=") for pair in ready.split()), [directory]


def on_magnetar(options: argparse.Namespace, peers: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every writer, format and codec on a fresh broker of ours."""
    with ExitStack() as stack:
        addresses, data = stack.enter_context(ours(options.place))
        clients = started(stack, KINDS, addresses)
        run = Run(clients, addresses, "magnetar", data, peers)
        for writer in clients.values():
            if writer.kind.name not in (options.writer or clients):
                continue
            for entry_format in options.format or FORMATS:
                for codec in writer.kind.codecs:
                    if codec in (options.codec or writer.kind.codecs):
                        run.cell(writer, entry_format, codec)
            if writer.kind.protocol == "pulsar" and not options.codec:
                run.chunks(writer)
                run.relay(clients["kafka-java"], writer)
            print(writer.kind.name, tally(run.found, writer.kind.name), flush=True)
            if not options.codec:
                mine = [each for each in run.found if each["writer"] == writer.kind.name]
                keep(PLACES[options.place], mine, clients)
        return run.found


def on_peers(found: list[dict[str, Any]]) -> None:
    """The same within Apache Kafka and within Apache Pulsar, which shows that the checks are fair."""
    sys.path.insert(0, str(HERE.parent))
    from benchmarks.peers.kafka import Kafka
    from benchmarks.peers.pulsar import Pulsar

    for peer, protocol in ((Kafka, "kafka"), (Pulsar, "pulsar")):
        with (
            tempfile.TemporaryDirectory() as directory,
            peer(Path(directory) / "peer") as broker,
            ExitStack() as stack,
        ):
            addresses = {protocol: broker.address}
            clients = started(stack, KINDS, addresses)
            run = Run(clients, addresses, protocol)
            for writer in clients.values():
                for codec in writer.kind.codecs:
                    run.cell(writer, "-", codec)
                if protocol == "pulsar":
                    run.chunks(writer)
                print(peer.name, writer.kind.name, tally(run.found, writer.kind.name), flush=True)
            found += run.found
            keep("peers", run.found, clients)


def tally(found: Sequence[dict[str, Any]], writer: str) -> str:
    mine = [each["ok"] for each in found if each["writer"] == writer]
    return f"{sum(mine)} of {len(mine)}"


def kept() -> dict[str, Any]:
    """The results so far."""
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return results


def keep(column: str, found: Sequence[dict[str, Any]], clients: Mapping[str, Client]) -> None:
    """Put the outcomes of some writers in the place of their old ones."""
    results = kept()
    writers = {each["writer"] for each in found}
    others = [each for each in results.get(column, ()) if each["writer"] not in writers]
    results[column] = sorted(
        [*others, *found], key=lambda e: (e["writer"], e["test"], e["cell"], e["reader"])
    )
    results["versions"] = {name: client.version for name, client in clients.items()} | results.get(
        "versions", {}
    )
    run = {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), "broker": version("magnetar")}
    results |= {"runs": results.get("runs", {}) | {column: run}} if column != "magnetar" else run
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", action="store_true", help="within Apache Kafka and Apache Pulsar instead")
    parser.add_argument("--place", choices=list(PLACES), default="standalone")
    parser.add_argument("--writer", action="append", choices=[kind.name for kind in KINDS])
    parser.add_argument("--format", action="append", choices=FORMATS)
    parser.add_argument("--codec", action="append")
    options = parser.parse_args()

    found: list[dict[str, Any]] = []
    if options.peers:
        on_peers(found)
    else:
        found = on_magnetar(options, kept().get("peers", ()))
    failed = sum(not each["ok"] and each["with_peers"] for each in found)
    print(f"{failed} failed" if failed else f"all {len(found)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
