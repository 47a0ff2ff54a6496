"""One run: the load, the faults one after the other, and the book at the end."""

from __future__ import annotations

import faulthandler
import os
import random
import subprocess
import threading
import time
from collections.abc import Sequence as Kinds
from datetime import date
from pathlib import Path
from typing import Any

import pulsar

from benchmarks.faults.appends import (
    KafkaAppends,
    KafkaReads,
    Lists,
    PulsarAppends,
    PulsarReads,
    topic_of,
)
from benchmarks.faults.book import Book
from benchmarks.faults.faults import FAULTS, Fault
from benchmarks.faults.flows import (
    COPIED,
    LISTS,
    LISTS_PARTITIONS,
    MONEY,
    MONEY_PARTITIONS,
    NUMBERS,
    PARTITIONS,
    PER_TRANSACTION,
    Flow,
    Member,
    Money,
    Newcomers,
    Numbers,
    Sequence,
    Subscriber,
    Sums,
    make_topics,
    pulsar_client,
    read_all,
)
from benchmarks.faults.house import SESSION_MS, House
from benchmarks.faults.subscriptions import Acknowledgements
from benchmarks.faults.work import IN_FLIGHT_S, Crew, Work
from tests.transactions.copying import Copier

CALM_S = 6.0
"""Time after a fault in which what it costs may still show, and bundles go home: that takes brokers three seconds."""
STANDSTILL_S = 45.0
"""After which whoever supervises the copier begins another."""
PATIENCE_S = 120.0
"""What has not come within so many seconds of the end is lost; who stands still for longer before that is told of."""
STUCK_S = 600.0
"""All streams must go on within so many seconds, or that is a violation."""
FROZEN_S = 2 * STUCK_S
"""After so many within one fault all of this process stands still, and is ended with what its threads do.

librdkafka 2.16 takes the locks of a partition and of the client in either order (`rd_kafka_broker_fail`, and
`rd_kafka_toppar_handle_OffsetForLeaderEpoch`); whoever asks such a client for its assignment waits with Python's lock.
"""


class Run:
    """One run on fresh data."""

    def __init__(
        self,
        data: Path,
        seed: int,
        seconds: float,
        faults: Kinds[Fault] = FAULTS,
        session_ms: int = SESSION_MS,
        calm_s: float = CALM_S,
    ) -> None:
        """Each kind of ``faults`` is done at least once, and all of them in rounds until ``seconds`` have passed."""
        self._data = data
        self._seed = seed
        self._seconds = seconds
        self._session_ms = session_ms
        self._calm_s = calm_s
        self._faults = list(faults)
        self._loads: list[float] = []
        self._book = Book()
        self._done: list[dict[str, Any]] = []

    def go(self) -> dict[str, Any]:
        """Do all of it; return what came of it, as JSON has it."""
        with House(self._data, session_ms=self._session_ms, every_link=True) as house:
            self._house = house
            faults = [each for each in self._faults if each.can(house)]
            make_topics(house.bootstrap)
            self._begin()
            self._wait_for_all("the start")
            began = time.monotonic()
            dice = random.Random(self._seed)
            round_: list[Fault] = []
            while time.monotonic() - began < self._seconds or round_ or not self._done:
                if not round_:
                    round_ = dice.sample(faults, len(faults))
                faulthandler.dump_traceback_later(FROZEN_S, exit=True)
                self._hurt(round_.pop(), dice, began)
            faulthandler.cancel_dump_traceback_later()
            lasted = time.monotonic() - began
            self._end()
            self._check()
            house.keeps = bool(self._book.violations)
        return self._outcome(lasted)

    def _begin(self) -> None:
        book, house = self._book, self._house
        servers = house.bootstrap
        self._numbers = Numbers(servers, book)
        self._money = Money(servers, book, self._seed)
        self._sums = Sums(self._money, book)
        names = [*(line.name for line in self._numbers.lines), "transactions"]
        pulses = {name: book.consuming(name) for name in names}
        log = self._data / "pulsar-clients.log"
        self._sequences = [
            Sequence(house.pulsar, book, number, log, batches=number % 2 == 1) for number in range(3)
        ]
        self._lists = Lists(book)
        appenders = [
            KafkaAppends(servers, self._lists, book, random.Random(self._seed + number), number)
            for number in (1, 2)
        ]
        pulsars = PulsarAppends(
            house.pulsar, self._lists, book, random.Random(self._seed), self._data / "pulsar-appender.log"
        )
        self._work, self._crew = Work(servers, book), Crew(servers, book)
        house.clients = [self._crew, pulsars]
        self._producers: list[Flow] = [
            self._numbers,
            self._money,
            *self._sequences,
            *appenders,
            pulsars,
            self._work,
        ]
        self._readers: list[Flow] = [
            *(Member(servers, self._numbers, self._sums, pulses, number) for number in (1, 2)),
            Newcomers(servers, book),
            KafkaReads(servers, self._lists, book),
            PulsarReads(house.pulsar, self._lists, book, log),
            self._crew,
        ]
        self._seen: list[dict[int, Any]] = []
        self._acknowledgements: list[Acknowledgements] = []
        for sequence in self._sequences:
            self._seen.append({})
            for kind in (pulsar.ConsumerType.Shared, pulsar.ConsumerType.Failover):
                pulse = book.consuming(f"{sequence.line.name}, {kind.name}")
                self._acknowledgements.append(Acknowledgements(pulse.name, book))
                for number in (1, 2):
                    self._readers.append(
                        Subscriber(
                            house.pulsar,
                            sequence,
                            pulse,
                            kind,
                            number,
                            log,
                            self._seen[-1],
                            self._acknowledgements[-1],
                        )
                    )
        self._copiers = [Copier(servers, NUMBERS, COPIED, 1)]
        self._copying = book.consuming("copied in transactions")
        self._copies = 0
        for each in (*self._producers, *self._readers, *self._copiers):
            each.start()
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._look_after_copiers, daemon=True)
        self._watch.start()

    def _wait_for_all(self, what: str) -> None:
        """Wait until each stream has gone on."""
        pulses = [
            each for each in self._book.pulses if each is not self._copying
        ]  # it may hang, and is replaced
        before = [each.count for each in pulses]
        began, is_told = time.monotonic(), False
        while True:
            still = [each.name for each, count in zip(pulses, before, strict=True) if each.count == count]
            if not still:
                return
            waited = time.monotonic() - began
            if waited > PATIENCE_S and not is_told:
                is_told = True
                print(f"{PATIENCE_S:.0f} s after {what}, these stand still: {still}", flush=True)
                for each in still:
                    self._book.tell(each, f"stood still for more than {PATIENCE_S:.0f} s")
            if waited > STUCK_S:
                self._book.violate(f"after {what}, these do not go on within {STUCK_S:.0f} s: {still}")
                return
            time.sleep(0.05)

    def _look_after_copiers(self) -> None:
        """Replace who hangs, as whoever supervises a process would, until all is over."""
        moved = time.monotonic()
        while not self._is_over.wait(0.05):
            if (copies := sum(each.committed + each.aborted for each in self._copiers)) != self._copies:
                self._copies = copies
                self._copying.beat()
                moved = time.monotonic()
            for number, each in enumerate(self._copiers):
                if each.errors:
                    self._book.tell("copier", each.errors.pop(0))
                if each.died is not None:
                    self._book.violate(f"the copier died: {each.died!r}")
                    each.died = None
                stands = time.monotonic() - moved > STANDSTILL_S
                if stands:
                    self._book.tell("copier", f"copied nothing for {STANDSTILL_S:.0f} s")
                    moved = time.monotonic()
                if stands or each.hangs():  # librdkafka's issues 5456 and 5511
                    self._copiers[number] = each.successor()

    def _hurt(self, fault: Fault, dice: random.Random, began: float) -> None:
        book = self._book
        for each in book.pulses:
            each.begin()
        at = time.monotonic() - began
        said = sum(book.told.values())
        book.last_fault = time.monotonic()
        try:
            whom = fault.act(self._house, dice)
        except OSError as error:  # the admin REST, of a broker that is just not able
            whom = f"refused: {error}"
        self._loads.append(os.getloadavg()[0])
        acted = time.monotonic() - began - at
        self._wait_for_all(f"{fault.name} ({whom})")
        time.sleep(self._calm_s)
        done = {
            "fault": fault.name,
            "whom": whom,
            "at_s": round(at, 1),
            "acted_s": round(acted, 2),
            "produced_again_s": {each.name: round(each.longest(), 3) for each in book.produced},
            "consumed_again_s": {each.name: round(each.longest(), 3) for each in book.consumed},
            "told": sum(book.told.values()) - said,
        }
        self._done.append(done)
        longest = [max(done[key].values()) for key in ("produced_again_s", "consumed_again_s")]
        print(
            f"{at:7.1f} s  {fault.name} ({whom}): {longest[0]:.2f} s, {longest[1]:.2f} s; "
            f"{len(book.violations)} violations",
            flush=True,
        )

    def _end(self) -> None:
        for each in self._producers:
            each.halt.set()
        for each in self._producers:
            each.join(PATIENCE_S)
            if each.is_alive():
                self._book.violate(f"{each.name} does not end: what it sent is not acknowledged")
        end = time.monotonic() + PATIENCE_S
        while (lacking := self._lacking()) and time.monotonic() < end:
            time.sleep(0.2)
        for each in lacking:
            self._book.violate(each)
        self._check_shares()
        self._check_copies()
        self._is_over.set()
        self._watch.join()
        for reader in (*self._readers, *self._copiers):
            reader.halt.set()
        for reader in (*self._readers, *self._copiers):
            reader.join(30)

    def _lacking(self) -> list[str]:
        """Return what is acknowledged and was not received."""
        found = []
        for line in self._numbers.lines:
            if (seen := line.seen("group")) < len(line.acknowledged):
                found.append(f"{line.name}: the group has {seen} of {len(line.acknowledged)}")
        for sequence, shared in zip(self._sequences, self._seen, strict=True):
            for name, count in (("shared", len(shared)), ("failover", sequence.line.seen("failover"))):
                if count < len(sequence.line.acknowledged):
                    found.append(
                        f"{sequence.line.name}: {name} has {count} of {len(sequence.line.acknowledged)}"
                    )
        found += self._crew.lacks(self._work.count)
        return found + self._sums.lacks()[:20] + self._lists.lacks()[:20] + self._lists.behind()

    def _check(self) -> None:
        """Read all topics anew, and compare."""
        book, servers = self._book, self._house.bootstrap
        wanted = [
            [(number, number) for number in range(len(line.acknowledged))] for line in self._numbers.lines
        ]
        found = [
            [(offset, int(value)) for offset, value in part]
            for part in read_all(servers, NUMBERS, PARTITIONS, "read_uncommitted")
        ]
        for partition in range(PARTITIONS):
            if found[partition] != wanted[partition]:
                book.violate(f"{NUMBERS}-{partition}: {_differs(found[partition], wanted[partition])}")
        self._check_money()
        self._check_lists()
        for sequence in self._sequences:
            self._check_sequence(sequence)

    def _check_copies(self) -> None:
        """Wait until all is copied, in order and once."""
        wanted = [list(range(len(line.acknowledged))) for line in self._numbers.lines]
        end = time.monotonic() + 3 * PATIENCE_S
        while True:
            copied = [
                [int(value) for _, value in part]
                for part in read_all(self._house.bootstrap, COPIED, PARTITIONS, "read_committed")
            ]
            if copied == wanted or time.monotonic() > end:
                break
            time.sleep(1)
        for partition in range(PARTITIONS):
            if copied[partition] != wanted[partition]:
                self._book.violate(f"{COPIED}-{partition}: {_differs(copied[partition], wanted[partition])}")
        self._copied = sum(map(len, copied))

    def _check_money(self) -> None:
        found = read_all(self._house.bootstrap, MONEY, MONEY_PARTITIONS, "read_committed")
        outcomes = self._money.outcomes
        for partition, records in enumerate(found):
            got = [tuple(map(int, value.split(b"."))) for _, value in records]
            either = {number for number, _ in got if outcomes[number] == "either"}
            wanted = [
                (number, each)
                for number, outcome in enumerate(outcomes)
                if outcome == "committed" or number in either
                for each in range(PER_TRANSACTION)
            ]
            if got != wanted:
                self._book.violate(f"{MONEY}-{partition}: {_differs(got, wanted)}")

    def _check_shares(self) -> None:
        """Wait until locks are over, and all is acknowledged to somebody but for what nobody was told of."""
        end = time.monotonic() + IN_FLIGHT_S
        while self._crew.unacknowledged(self._work.count) and time.monotonic() < end:
            time.sleep(0.2)

    def _check_lists(self) -> None:
        """Compare what is read anew, by both protocols, with what was read meanwhile."""
        found = read_all(self._house.bootstrap, LISTS, LISTS_PARTITIONS, "read_committed")
        for number, one in enumerate(self._lists.lists):
            for protocol, values in (
                ("Kafka", [value for _, value in found[number]]),
                ("Pulsar", self._read_anew(topic_of(number))),
            ):
                if values != one:
                    self._book.violate(f"{LISTS}-{number}, {protocol}: {_differs(values, one)}")

    def _read_anew(self, topic: str) -> list[bytes]:
        client = pulsar_client(self._house.pulsar, self._data / "pulsar-clients.log")
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(30_000).data())
        client.close()
        return found

    def _check_sequence(self, sequence: Sequence) -> None:
        found = list(map(int, self._read_anew(sequence.topic)))
        wanted = list(range(len(sequence.line.acknowledged)))
        if found != wanted:
            self._book.violate(f"{sequence.line.name}: {_differs(found, wanted)}")

    def _outcome(self, lasted: float) -> dict[str, Any]:
        outcomes = self._money.outcomes
        commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
        return {
            "day": date.today().isoformat(),
            "commit": commit.stdout.strip(),
            "seed": self._seed,
            "seconds": round(lasted),
            "session_ms": self._session_ms,
            "load": f"{min(self._loads):.0f} to {max(self._loads):.0f}",
            "violations": self._book.violations,
            "faults": self._done,
            "told": dict(self._book.told.most_common()),
            "records": {
                "idempotent": sum(len(line.acknowledged) for line in self._numbers.lines),
                "transactions": {each: outcomes.count(each) for each in ("committed", "aborted", "either")},
                "of each transaction": PER_TRANSACTION * MONEY_PARTITIONS,
                "copied exactly once": self._copied,
                "lists": self._lists.counts(),
                "share group": {
                    "sent": self._work.count,
                    "acknowledged": len(self._crew.shares.acknowledged),
                    "came again in flight": self._crew.shares.came_late,
                },
                "came again to subscriptions": sum(each.came_again for each in self._acknowledgements),
                "of Pulsar's producers": sum(len(each.line.acknowledged) for each in self._sequences),
            },
        }


def _differs(found: list[Any], wanted: list[Any]) -> str:
    first = next(
        (n for n, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b),
        min(len(found), len(wanted)),
    )
    return (
        f"{len(found)} records for {len(wanted)}; differs from place {first}: "
        f"{found[first : first + 5]} for {wanted[first : first + 5]}"
    )
