"""What Pulsar's brokers, and KoP's, keep in topics of a namespace: topics' own policies, groups, transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.base.errors import InvalidPolicy
from magnetar.doctor.cluster_doctor import ClusterFinding, Severity
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import MetadataStore
from magnetar.migrate.kop_groups import KopGroups, KopTransactions
from magnetar.migrate.pulsar_log import PulsarLog
from magnetar.migrate.pulsar_messages import read_log
from magnetar.migrate.pulsar_schema_ledgers import decode_locator, decode_schema
from magnetar.migrate.pulsar_topic_policies import EVENTS, ChangeEvents, OwnPolicies
from magnetar.records.errors import RecordsError
from magnetar.topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicName
from magnetar.topics.topic import Topic

if TYPE_CHECKING:
    from magnetar.ledger.bookkeeper.bookies import Bookies

SCHEMAS = "/schemas"
KEPT_POLICIES, KEPT_KOP = "/magnetar/from-pulsar/policies", "/magnetar/from-pulsar/kop"
"""Namespaces whose topics' own policies were taken; nodes of KoP's own topics as they were."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class FoundPolicies:
    """What a topic says for itself, where Pulsar keeps it."""

    topic: str
    policies: tuple[str, ...]
    """By Pulsar's names, but for what is a configuration of the topic here."""
    not_honoured: tuple[str, ...]
    """Those of them that change nothing here."""


@dataclass(frozen=True, slots=True)
class FoundGroup:
    """A group of Kafka's consumers in what KoP keeps."""

    namespace: str
    group: str
    offsets: int
    """Partitions that it has committed for."""


class SystemTopics:
    """What was found in them, as far as it was not taken. ``load`` before use."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._kept: set[str] = set()
        self.policies: dict[TopicName, OwnPolicies] = {}
        """What topics say for themselves."""
        self.namespaces: list[str] = []
        """Those whose ``__change_events`` were read."""
        self.groups: dict[str, KopGroups] = {}
        """What KoP's partitions of ``__consumer_offsets`` say, by the log's path."""
        self.findings: list[ClusterFinding] = []

    async def load(self) -> None:
        """Find out what was taken before."""
        for kept in (KEPT_POLICIES, KEPT_KOP):
            for tenant in await self._store.children(kept):
                for namespace in await self._store.children(f"{kept}/{tenant}"):
                    place = f"{kept}/{tenant}/{namespace}"
                    self._kept |= {place, *(f"{place}/{each}" for each in await self._store.children(place))}

    def was_taken(self, log: PulsarLog) -> bool:
        """Whether a log of KoP's was made one of the coordinators here."""
        return kept_kop(log) in self._kept

    def is_kops(self, log: PulsarLog, topic: Topic | None) -> bool:
        """Whether a log is a partition of a topic that KoP's coordinators keep, and was not taken."""
        is_coordinators = log.base in (CONSUMER_OFFSETS, TRANSACTION_STATE)
        return is_coordinators and topic is not None and topic.made_partitioned and not self.was_taken(log)

    async def read(
        self,
        bookies: Bookies,
        logs: Iterable[PulsarLog],
        topic_of: Callable[[PulsarLog], Topic | None],
        topics: Collection[TopicName],
        *,
        fences: bool,
    ) -> None:
        """Read all of it; unless ``fences``, without disturbing who writes it. ``topics`` are those that are there."""
        self.findings, self.policies, self.namespaces, self.groups = [], {}, [], {}
        of_events: dict[str, list[PulsarLog]] = {}
        for log in logs:
            is_new = log.namespace.count("/") == 1 and f"{KEPT_POLICIES}/{log.namespace}" not in self._kept
            if log.base == EVENTS and is_new:
                of_events.setdefault(log.namespace, []).append(log)
            elif self.is_kops(log, topic_of(log)):
                await self._read_kops(bookies, log, fences=fences)
        for namespace, some in of_events.items():
            await self._read_policies(bookies, namespace, some, topics, fences=fences)

    async def _read_kops(self, bookies: Bookies, log: PulsarLog, *, fences: bool) -> None:
        found = KopGroups() if log.base == CONSUMER_OFFSETS else KopTransactions()
        try:
            async for each in read_log(bookies, log.info, log.compaction, fences=fences):
                found.apply(each)
        except (LedgerError, RecordsError) as error:
            self._error(
                "kop",
                f"{log.name} is KoP's, and cannot be read: {error}",
                "Note the groups' offsets, delete the topic, and set them by `magnetar group` after the takeover.",
            )
            return
        if isinstance(found, KopGroups):
            self.groups[log.path] = found
        elif ids := found.open_ids():
            self._error(
                "kop-transactions",
                f"{log.name}: transactions have begun and not ended: {_some(ids)}",
                "Have their producers end them, or wait for their time-out, before KoP's brokers are ended.",
            )

    async def _read_policies(
        self,
        bookies: Bookies,
        namespace: str,
        logs: Sequence[PulsarLog],
        topics: Collection[TopicName],
        *,
        fences: bool,
    ) -> None:
        try:
            events = ChangeEvents(await self._schemas_of(bookies, f"{SCHEMAS}/{namespace}/{EVENTS}"))
            for log in logs:
                async for each in read_log(bookies, log.info, log.compaction, fences=fences):
                    events.apply(each)
            said = events.policies()
        except (LedgerError, RecordsError, InvalidPolicy) as error:
            self._error(
                "topic-policies",
                f"{namespace}: topics' own policies in {EVENTS} cannot be read: {error}",
                f"Note them (pulsar-admin topicPolicies), delete {namespace}/{EVENTS}, and set them anew here.",
            )
            return
        self.namespaces.append(namespace)
        missing = [name for name in said if name.persistent and name not in topics]
        if missing:
            left = _some([each.local for each in missing])
            self._warning(f"{namespace}: policies of topics that are not there are left: {left}")
        of_key: dict[tuple[str, str], list[str]] = {}
        for name, own in said.items():
            if name not in missing:
                self.policies[name] = own
                for key, why in own.not_honoured().items():
                    of_key.setdefault((key, why), []).append(name.local)
        for (key, why), names in of_key.items():
            self._warning(f"{namespace}: {key} of {_some(names)} is kept and not honoured: {why}")

    async def _schemas_of(self, bookies: Bookies, path: str) -> dict[int, bytes]:
        stored = await self._store.get(path)
        found = {}
        for place in [] if stored is None else decode_locator(stored.value, path):
            (data,) = await bookies.read(place.ledger_id, place.entry_id, place.entry_id)
            found[place.version] = decode_schema(data, place).data
        return found

    def found_policies(self) -> Iterator[FoundPolicies]:
        """Yield each topic that says something for itself."""
        for name, own in self.policies.items():
            yield FoundPolicies(str(name), (*own.content, *own.config), tuple(own.not_honoured()))

    def found_groups(self) -> Iterator[FoundGroup]:
        """Yield each group that KoP knows."""
        for path, groups in self.groups.items():
            tenant, namespace = path.split("/")[2:4]
            offsets = Counter(group for group, _, _ in groups.offsets)
            for group in sorted(groups.group_ids()):
                yield FoundGroup(f"{tenant}/{namespace}", group, offsets[group])

    def _error(self, kind: str, what: str, next_step: str) -> None:
        self.findings.append(ClusterFinding(Severity.error, kind, what, next_step))

    def _warning(self, what: str) -> None:
        self.findings.append(ClusterFinding(Severity.warning, "policy", what, ""))


def kept_kop(log: PulsarLog) -> str:
    """Return where the node of a log of KoP's is kept as it was."""
    return f"{KEPT_KOP}/{log.namespace}/{log.encoded}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
