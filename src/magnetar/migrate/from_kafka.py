"""Topics of another Kafka cluster moved here while it is in use: same offsets, configurations, groups' offsets, ACLs.

A topic that is migrated is led by the other cluster until the cut-over: here only the migration writes it (see
`magnetar.client.copying`), and producers that come too early wait. Whatever ends the migration before, it can be begun
again, and goes on where the logs here end. At the cut-over nobody may write there any more; what was copied is
compared, groups' offsets are copied a last time, and then producers are let in here.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from magnetar.admin.cluster import ClusterAdmin, in_an_operators_words
from magnetar.admin.configs import ResourceKind, alter_configs, describe_configs
from magnetar.admin.errors import Declined, Invalid, NotThere
from magnetar.admin.offsets import EARLIEST, LATEST, Key, Spot, list_offsets
from magnetar.admin.topics import TopicRow, add_partitions, create_topic, list_topics, trim
from magnetar.client.cluster import Cluster
from magnetar.client.comparing import Compared, compare
from magnetar.client.copying import Copier
from magnetar.migrate.from_kafka_groups import (
    AclsMoved,
    GroupMoved,
    StillThere,
    copy_acls,
    copy_groups,
    members_left,
)
from magnetar.topics.topic_config import CONFIGS, MIGRATION

WRITER = "migration.writer"
_BUSY_WAIT_MS, _IDLE_WAIT_MS = 100, 500
_OWN = "topic"  # where a configuration comes from that was set for the topic


@dataclass(frozen=True, slots=True)
class PartitionMoved:
    """One partition: where it begins and ends on both sides, and what the source let go of before it was copied."""

    topic: str
    partition: int
    first: int
    next: int
    source_first: int
    source_next: int
    expired: int


@dataclass(frozen=True, slots=True)
class TopicMoved:
    """One topic: the configurations that it brought along, and those that mean nothing here."""

    topic: str
    partitions: int
    configs: dict[str, str]
    left_out: tuple[str, ...]
    differs: dict[str, str]
    """What it has from its cluster's own defaults, and has otherwise here."""


@dataclass(frozen=True, slots=True)
class BatchAudit:
    """What was compared, batch by batch."""

    batches: int
    records: int
    bytes: int
    compacted_away: int
    different: int
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FromKafka:
    """How far a migration is. ``cut_over`` says that the topics are led here now."""

    cut_over: bool
    dry_run: bool
    bytes: int
    topics: tuple[TopicMoved, ...]
    partitions: tuple[PartitionMoved, ...]
    groups: tuple[GroupMoved, ...]
    acls: AclsMoved
    audit: BatchAudit | None


@dataclass(frozen=True, slots=True)
class WantedOfKafka:
    """What is to be migrated: shell patterns of topics' and groups' names."""

    topics: Sequence[str] = ("*",)
    groups: Sequence[str] = ("*",)
    acls: bool = True

    def has_topic(self, name: str) -> bool:
        return any(fnmatchcase(name, each) for each in self.topics)

    def has_group(self, name: str) -> bool:
        return any(fnmatchcase(name, each) for each in self.groups)


@dataclass(slots=True)
class FromKafkaRun:
    """One run of it. ``say`` is told what it does or waits for; ``progress`` how many offsets are done, of how many."""

    source: ClusterAdmin
    target: ClusterAdmin
    wanted: WantedOfKafka
    say: Callable[[str], object] = lambda text: None
    progress: Callable[[int, int], object] = lambda done, total: None
    clock: Callable[[], float] = time.monotonic
    _topics: dict[str, TopicMoved] = field(default_factory=dict)
    _copier: Copier = field(init=False)
    _audited: dict[Key, int] = field(default_factory=dict)
    _compared: Compared = field(default_factory=Compared)

    def __post_init__(self) -> None:
        writer = f"{MIGRATION}{uuid.uuid4().hex}"
        self._copier = Copier(Cluster(self.source.settings), Cluster(self.target.settings), writer)

    def __enter__(self) -> FromKafkaRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._copier.source.close()
        self._copier.target.close()

    # Steps.

    def plan(self) -> FromKafka:
        """Return what would be moved, with nothing changed; raise what would stand against it."""
        here = {each.name for each in list_topics(self.target, internal=True)}
        for row in self._wanted_topics():
            if row.name in here:
                self._check_migrating(row.name)
            self._topics[row.name] = self._configs_of(row)
        with in_an_operators_words():
            groups = copy_groups(self.source, self.target, self.wanted.has_group, self._topics, dry_run=True)
        acls = copy_acls(self.source, self.target, dry_run=True) if self.wanted.acls else AclsMoved()
        return self._told(groups, acls, dry_run=True)

    def begin(self) -> None:
        """Make the topics here, or take those over that an earlier run had begun."""
        here = {each.name: each for each in list_topics(self.target, internal=True)}
        rows = self._wanted_topics()
        for row in rows:  # all are looked at before the first is made
            if row.name in here:
                self._check_migrating(row.name)
        for row in rows:
            self.say(f"topic {row.name}")
            self._topics[row.name] = moved = self._configs_of(row)
            mark = {WRITER: self._copier.writer}
            if row.name not in here:
                create_topic(self.target, row.name, row.partitions, {**moved.configs, **mark})
            else:
                alter_configs(self.target, ResourceKind.TOPIC, row.name, {**moved.configs, **mark})
                if here[row.name].partitions < row.partitions:
                    add_partitions(self.target, row.name, row.partitions)
            self._topics[row.name] = self._with_differences(moved)
        self._add(rows)

    def copy(self) -> int:
        """Copy what one round of questions brings; give how many bytes that was."""
        with in_an_operators_words():
            caught_up = self.is_caught_up
            copied = self._copier.round(max_wait_ms=_IDLE_WAIT_MS if caught_up else _BUSY_WAIT_MS)
        done = sum(each.next for each in self._copier.copied.values())
        left = sum(max(each.high_watermark - each.next, 0) for each in self._copier.copied.values())
        self.progress(done, done + left)
        return copied

    @property
    def is_caught_up(self) -> bool:
        """Whether all is here that the other cluster had when it was last asked."""
        return all(each.is_caught_up for each in self._copier.copied.values())

    def catch_up(self) -> None:
        """Copy until that is so."""
        while not self.is_caught_up:
            self.copy()
        self._reconnect()

    def look_again(self) -> None:
        """Have partitions that a topic was given meanwhile follow."""
        self._reconnect()
        rows = [each for each in self._wanted_topics() if each.name in self._topics]
        for row in rows:
            if row.partitions > self._topics[row.name].partitions:
                add_partitions(self.target, row.name, row.partitions)
                self._topics[row.name] = self._with_differences(self._configs_of(row))
        self._add(rows)

    def groups(self) -> tuple[GroupMoved, ...]:
        """Copy what groups have committed for the topics."""
        self._reconnect()
        with in_an_operators_words():
            return copy_groups(self.source, self.target, self.wanted.has_group, self._topics)

    def acls(self) -> AclsMoved:
        """Copy the entries of ACLs."""
        return copy_acls(self.source, self.target) if self.wanted.acls else AclsMoved()

    def audit(self) -> BatchAudit:
        """Compare what has been copied and was not compared yet; raise `Declined` for any difference."""
        self._reconnect()
        keys = list(self._copier.copied)
        low, low_there = (
            list_offsets(self.target, keys, EARLIEST),
            list_offsets(self.source, keys, EARLIEST),
        )
        with in_an_operators_words():
            for key in keys:
                start = max(low[key], low_there[key], self._audited.get(key, 0))
                end = self._copier.copied[key].next
                if start < end:
                    self.say(f"comparing {key[0]}-{key[1]}")
                    compacted = "compact" in self._cleanup_policy(key[0])
                    compare(
                        self._copier.source,
                        self._copier.target,
                        key,
                        start,
                        end,
                        self._compared,
                        compacted=compacted,
                    )
                self._audited[key] = end
        found = self._compared
        if found.different:
            raise Declined(
                f"{found.different} differences: {'; '.join(found.differences)}",
                "Nothing was cut over. Delete the topic here and migrate it anew; the broker's log may say more.",
            )
        return BatchAudit(
            found.batches,
            found.records,
            found.bytes,
            found.compacted_away,
            found.different,
            tuple(found.differences),
        )

    def wait_until_quiet(self, quiet_s: float) -> None:
        """Go on copying until nothing came for so long, no transaction is open there, and groups have no members."""
        since, ends = self.clock(), self._ends()
        while True:
            self.copy()
            now = self.clock()
            if (seen := self._ends()) != ends or not self.is_caught_up:
                moving = sorted({key[0] for key in seen if seen[key] != ends.get(key)})
                self.say(f"producers still write to {_few(moving)}: stop them" if moving else "copying")
                since, ends = now, seen
                continue
            opened = [
                key
                for key, each in self._copier.copied.items()
                if each.last_stable_offset < each.high_watermark
            ]
            if opened:
                self.say(f"a transaction is open in {_few([f'{name}-{index}' for name, index in opened])}")
                continue
            if now - since < quiet_s:
                self.say("waiting whether anything more comes")
                continue
            left = members_left(self.source, self.wanted.has_group, self._topics)
            if not left:
                return
            self.say(f"groups still have members: stop {_few([_group(each) for each in left])}")

    def cut_over(self, groups: Sequence[GroupMoved], acls: AclsMoved) -> FromKafka:
        """Let producers in here, of topics that have been compared to their ends; give what was moved.

        Raises `Declined` if anything was written there meanwhile.
        """
        keys = list(self._copier.copied)
        audit = self.audit()
        self._follow_starts(keys)
        before = list_offsets(self.source, keys, LATEST)
        late = [key for key in keys if before[key] != self._copier.copied[key].next]
        if late:
            raise Declined(
                f"records came to {_few([f'{name}-{index}' for name, index in late])} at the last moment",
                "Nothing was cut over. Stop their producers, and run this again.",
            )
        told = self._told(groups, acls, audit=audit, cut_over=True)
        for name in self._topics:
            self.say(f"topic {name} is led here now")
            alter_configs(self.target, ResourceKind.TOPIC, name, {WRITER: None})
        after = list_offsets(self.source, keys, LATEST)
        late = [key for key in keys if after[key] != before[key]]
        if late:
            raise Declined(
                "the topics are led here now, but records came to the source while they were handed over: "
                + _few([f"{name}-{index} from offset {before[name, index]} on" for name, index in late]),
                "They are not here. Stop whoever writes there, and write these records again.",
            )
        return told

    def report(
        self, groups: Sequence[GroupMoved], acls: AclsMoved, audit: BatchAudit | None = None
    ) -> FromKafka:
        """Return how far it is."""
        self._reconnect()
        self._follow_starts(list(self._copier.copied))
        return self._told(groups, acls, audit=audit)

    # What they are made of.

    def _reconnect(self) -> None:
        """Ask on new connections: while much was copied, brokers may have closed those that nobody used."""
        self.source.close()
        self.target.close()

    def _wanted_topics(self) -> list[TopicRow]:
        rows = [each for each in list_topics(self.source) if self.wanted.has_topic(each.name)]
        if not rows:
            raise NotThere(
                f"the source has no topic like {', '.join(self.wanted.topics)}",
                "See 'magnetar topic list -b SOURCE'.",
            )
        return rows

    def _check_migrating(self, name: str) -> None:
        configs = describe_configs(self.target, ResourceKind.TOPIC, name).configs
        if not any(row.name == WRITER and row.value for row in configs):
            raise Declined(
                f"topic {name} is here already, and is not being migrated",
                "Leave it out with --topic, or delete it here with 'magnetar topic delete'.",
            )

    def _configs_of(self, row: TopicRow) -> TopicMoved:
        configs = describe_configs(self.source, ResourceKind.TOPIC, row.name).configs
        own = {each.name: each.value for each in configs if each.source == _OWN and each.value is not None}
        return TopicMoved(
            row.name,
            row.partitions,
            {name: value for name, value in own.items() if name in CONFIGS},
            tuple(sorted(name for name in own if name not in CONFIGS)),
            {},
        )

    def _with_differences(self, moved: TopicMoved) -> TopicMoved:
        theirs = describe_configs(self.source, ResourceKind.TOPIC, moved.topic).configs
        ours = {
            each.name: each.value
            for each in describe_configs(self.target, ResourceKind.TOPIC, moved.topic).configs
        }
        differs = {
            each.name: f"{each.value} there, {ours[each.name]} here"
            for each in theirs
            if each.name in ours
            and each.name != WRITER
            and CONFIGS[each.name].honoured
            and each.value != ours[each.name]
        }
        return TopicMoved(moved.topic, moved.partitions, moved.configs, moved.left_out, differs)

    def _cleanup_policy(self, topic: str) -> str:
        configs = describe_configs(self.source, ResourceKind.TOPIC, topic).configs
        return next((each.value or "" for each in configs if each.name == "cleanup.policy"), "")

    def _add(self, rows: Iterable[TopicRow]) -> None:
        """Begin to copy partitions; what begins later than at offset 0 there, begins so here."""
        keys = [(row.name, index) for row in rows for index in range(row.partitions)]
        new = [key for key in keys if key not in self._copier.copied]
        if not new:
            return
        with in_an_operators_words():
            self._copier.add(new)
            firsts, ends = list_offsets(self.source, new, EARLIEST), list_offsets(self.source, new, LATEST)
            for key in new:
                copied = self._copier.copied[key]
                if copied.next == 0 and firsts[key] == ends[key] > 0:
                    self._copier.begin_at(key, firsts[key])
                elif copied.next == 0:
                    copied.next = firsts[key]
        self._follow_starts(new)

    def _follow_starts(self, keys: list[Key]) -> None:
        """Let go here of what the source has let go of."""
        theirs, ours = list_offsets(self.source, keys, EARLIEST), list_offsets(self.target, keys, EARLIEST)
        ends = list_offsets(self.target, keys, LATEST)
        for name, index in keys:
            first = min(theirs[name, index], ends[name, index])
            if first > ours[name, index]:
                trim(self.target, name, [index], Spot("offset", first))

    def _ends(self) -> dict[Key, int]:
        return {key: each.high_watermark for key, each in self._copier.copied.items()}

    def _told(
        self,
        groups: Sequence[GroupMoved],
        acls: AclsMoved,
        *,
        audit: BatchAudit | None = None,
        cut_over: bool = False,
        dry_run: bool = False,
    ) -> FromKafka:
        keys = [(each.topic, index) for each in self._topics.values() for index in range(each.partitions)]
        first, end = list_offsets(self.source, keys, EARLIEST), list_offsets(self.source, keys, LATEST)
        here = [] if dry_run else keys
        first_here, end_here = (
            list_offsets(self.target, here, EARLIEST),
            list_offsets(self.target, here, LATEST),
        )
        rows = []
        for key in keys:
            copied = self._copier.copied.get(key)
            expired = 0 if copied is None else copied.expired
            rows.append(
                PartitionMoved(
                    *key, first_here.get(key, 0), end_here.get(key, 0), first[key], end[key], expired
                )
            )
        return FromKafka(
            cut_over,
            dry_run,
            self._copier.copied_bytes,
            tuple(self._topics.values()),
            tuple(rows),
            tuple(groups),
            acls,
            audit,
        )


def parse_wanted(topics: list[str] | None, groups: list[str] | None, *, acls: bool) -> WantedOfKafka:
    """Return what command-line options say; raise `Invalid`."""
    if any(not each for each in (*(topics or ()), *(groups or ()))):
        raise Invalid("an empty name", "Write a name, or a pattern as in 'orders*'.")
    return WantedOfKafka(tuple(topics or ("*",)), tuple(groups or ("*",)), acls)


def _group(left: StillThere) -> str:
    return f"{left.group} ({left.state})"


def _few(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
