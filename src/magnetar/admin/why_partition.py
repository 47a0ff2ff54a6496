"""`why TOPIC-PARTITION`: the one reason that nothing new comes out of a partition. Facts in, a value out."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.admin.reasons import Reason, Why, ago

FLUSH_IS_SLOW_MS = 1000
"""An append that is not durable after so long is what holds its readers up."""
LONG_OPEN_MS = 1000
"""A transaction that is open for less holds nobody up that would ask."""
MOVING_MS = 5000
"""A partition that took an append within this time moves."""


@dataclass(frozen=True, slots=True)
class LastRefusal:
    """What storage last said to a producer, and has not taken back since."""

    at_ms: int
    kind: str
    """``StorageFull``, ``StorageFailed`` ..."""
    message: str


@dataclass(frozen=True, slots=True)
class FailedRead:
    """The last read that storage failed; what was asked for has not been read since."""

    at_ms: int
    offset: int
    message: str
    in_tier: bool
    """Whether tiered storage failed, or what lies there cannot be found."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The oldest transaction that is open in a partition; all behind its first offset waits for it."""

    producer_id: int
    first_offset: int
    transactional_id: str | None = None
    """None if no coordinator here knows of it: it hangs."""
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition as the broker sees it at ``now_ms``. Times in ms since 1970."""

    topic: str
    partition: int
    now_ms: int
    topic_partitions: int | None = None
    """How many partitions the topic has; None if there is no such topic."""
    problem: str = ""
    """Why the partition cannot be opened or read."""
    elsewhere: str = ""
    """Who has it, where it is not this broker: nothing more is known of it here then."""
    first_offset: int = 0
    next_offset: int = 0
    visible_offset: int = 0
    last_append_ms: int | None = None
    unflushed_since_ms: int | None = None
    """When the oldest append that is not durable yet was made."""
    parked: int = 0
    """Fetches that wait here for records."""
    flush: str = "always"
    refusal: LastRefusal | None = None
    unread: FailedRead | None = None
    free_bytes: int | None = None
    open_transaction: OpenTransaction | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


def why_partition(facts: PartitionFacts) -> Why:
    """Return the one reason, the strongest first: not there, not readable, not writable, not durable, not written."""
    return (
        _not_there(facts)
        or _refusing(facts)
        or _waiting_for_the_disk(facts)
        or _failing_readers(facts)
        or _in_a_transaction(facts)
        or _nobody_writes(facts)
    ).with_facts(_shown(facts))


def _not_there(facts: PartitionFacts) -> Why | None:
    name, count = facts.name, facts.topic_partitions
    if count is None:
        return Why(
            name,
            Reason.NO_TOPIC,
            f"topic {facts.topic} does not exist",
            "See 'magnetar topic list'; a topic that was deleted takes its offsets with it.",
        )
    if facts.partition >= count:
        return Why(
            name,
            Reason.NO_PARTITION,
            f"topic {facts.topic} has {count} partitions: 0 to {count - 1}",
            f"'magnetar topic add-partitions {facts.topic} N' makes more.",
        )
    if facts.elsewhere:
        return Why(
            name,
            Reason.ELSEWHERE,
            f"{facts.elsewhere} has it, and this one does not know more",
            f"'magnetar why {name} --bootstrap-server HOST:PORT' asks whoever has it, whichever broker is named.",
        )
    if facts.problem:
        return Why(
            name,
            Reason.DAMAGED,
            f"the partition's storage cannot be used: {facts.problem}",
            "Stop the broker and run 'magnetar ledger verify --data DIR', then 'magnetar ledger repair'.",
        )
    return None


def _refusing(facts: PartitionFacts) -> Why | None:
    refusal = facts.refusal
    if refusal is None:
        return None
    since = ago(facts.now_ms - refusal.at_ms)
    if refusal.kind == "StorageFull":
        return Why(
            facts.name,
            Reason.DISK_FULL,
            f"the disk is full, so producers are refused; the last one {since} ago: {refusal.message}",
            "Make room in the data directory's file system (delete topics, shorten retention.ms); "
            "writing resumes by itself.",
        )
    if refusal.kind in ("LedgerFenced", "LedgerClosed"):
        return Why(
            facts.name,
            Reason.FENCED,
            f"this broker may not write here any more; it was told so {since} ago: {refusal.message}",
            "See who else opened the data directory; restart this broker to take the partition back.",
        )
    return Why(
        facts.name,
        Reason.DISK_FAILED,
        f"storage refused the last append, {since} ago: {refusal.message}",
        "Look at the broker's log and the disk; restart the broker once the disk is well.",
    )


def _waiting_for_the_disk(facts: PartitionFacts) -> Why | None:
    if facts.unflushed_since_ms is None:
        return None
    waited_ms = facts.now_ms - facts.unflushed_since_ms
    if waited_ms < FLUSH_IS_SLOW_MS:
        return None
    behind = facts.next_offset - facts.visible_offset
    return Why(
        facts.name,
        Reason.FLUSH_SLOW,
        f"the disk is slow to flush: {behind} records wait to be durable, the first for {ago(waited_ms)}, "
        "and nobody may read or acknowledge them before",
        "Look at the disk (iostat); flush=interval or flush=os does not wait for it.",
    )


def _failing_readers(facts: PartitionFacts) -> Why | None:
    unread = facts.unread
    if unread is None or unread.offset < facts.first_offset:  # it was not kept since
        return None
    says = (
        f"offset {unread.offset} could not be read {ago(facts.now_ms - unread.at_ms)} ago: {unread.message}"
    )
    if unread.in_tier:
        return Why(
            facts.name,
            Reason.TIER_FAILED,
            says,
            "Nothing is lost by that here: see to the store, and readers go on by themselves. An object that is gone "
            "must be restored from a copy of the bucket.",
        )
    return Why(
        facts.name,
        Reason.UNREADABLE,
        says,
        "Look at the broker's log and the disk; stop the broker and run 'magnetar ledger verify --data DIR'.",
    )


def _in_a_transaction(facts: PartitionFacts) -> Why | None:
    found = facts.open_transaction
    if found is None or (found.since_ms is not None and facts.now_ms - found.since_ms < LONG_OPEN_MS):
        return None
    behind = facts.visible_offset - found.first_offset
    since = "" if found.since_ms is None else f" for {ago(facts.now_ms - found.since_ms)}"
    hangs = found.transactional_id is None
    whose = "which no coordinator knows of" if hangs else f"of transactional id {found.transactional_id}"
    abort = f"--partition {facts.name} --producer-id {found.producer_id}" if hangs else found.transactional_id
    return Why(
        facts.name,
        Reason.OPEN_TRANSACTION,
        f"a transaction of producer {found.producer_id}, {whose}, is open{since}: readers of what is committed, and "
        f"Pulsar's, wait at offset {found.first_offset} with {behind} records behind it",
        f"Wait for its producer, or for its time to be over; 'magnetar txn abort {abort}' ends it now.",
    )


def _nobody_writes(facts: PartitionFacts) -> Why:
    name = facts.name
    readers = _readers(facts.parked)
    if facts.next_offset == 0:
        return Why(
            name,
            Reason.NEVER_WRITTEN,
            f"nothing was ever written here{readers}",
            f"Look at the producer's topic and partitioner; 'magnetar produce {facts.topic}' writes a record.",
        )
    if facts.first_offset == facts.next_offset:
        return Why(
            name,
            Reason.EMPTIED,
            f"all {facts.next_offset} records were let go by retention or trim, and none came since{readers}",
            "Look at retention.ms and retention.bytes in 'magnetar topic describe', and at the producers.",
        )
    if facts.last_append_ms is None:
        return Why(name, Reason.IDLE, f"no producer has written lately{readers}", "Look at the producers.")
    idle_ms = facts.now_ms - facts.last_append_ms
    if idle_ms > MOVING_MS:
        return Why(
            name,
            Reason.IDLE,
            f"no producer has written for {ago(idle_ms)}; all {facts.visible_offset - facts.first_offset} "
            f"records may be read{readers}",
            "Look at the producers: nothing here stands in their way.",
        )
    return Why(
        name,
        Reason.MOVING,
        f"it moves: the last append was {ago(idle_ms)} ago",
        "If a reader is behind, ask why of it.",
    )


def _readers(parked: int) -> str:
    if not parked:
        return ""
    return f"; {parked} fetch{'es wait' if parked > 1 else ' waits'} here for the next record"


def _shown(facts: PartitionFacts) -> dict[str, str]:
    shown = {
        "offsets": f"{facts.first_offset} to {facts.visible_offset} readable, next is {facts.next_offset}",
        "parked fetches": str(facts.parked),
        "flush": facts.flush,
    }
    if facts.last_append_ms is not None:
        shown["last append"] = f"{ago(facts.now_ms - facts.last_append_ms)} ago"
    if facts.free_bytes is not None:
        shown["free disk bytes"] = str(facts.free_bytes)
    return shown if facts.topic_partitions is not None else {}
