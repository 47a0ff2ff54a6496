"""The result of taking over a Pulsar cluster in place, or of a look at one."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.doctor.cluster_doctor import ClusterFinding
from magnetar.migrate.pulsar_system_topics import FoundGroup, FoundPolicies


@dataclass(frozen=True, slots=True)
class FoundTopic:
    """One topic, or one partition of a partitioned one."""

    topic: str
    """``tenant/namespace/topic``, of a partition with ``-partition-N``."""
    state: str
    """``served``: as it is; ``to be moved``: its metadata have to be; ``Pulsar's own``: left alone; ``blocked``."""
    ledgers: int
    entries: int
    subscriptions: int


@dataclass(frozen=True, slots=True)
class Takeover:
    """The state of the cluster, and the work that was done."""

    metadata: str
    clusters: tuple[str, ...]
    is_possible: bool
    topics: tuple[FoundTopic, ...]
    findings: tuple[ClusterFinding, ...]
    """The worst first."""
    schemas_of_pulsar: int
    """Topics whose schemas lie where Pulsar has them."""
    policies_of_pulsar: tuple[FoundPolicies, ...] = ()
    """Of topics whose own policies lie where Pulsar has them, and were not taken."""
    groups_of_kop: tuple[FoundGroup, ...] = ()
    """What KoP keeps of groups, and was not taken."""
    topics_moved: int = 0
    schemas_moved: int = 0
    cursors_moved: int = 0
    policies_moved: int = 0
    """Topics with policies of their own."""
    groups_moved: int = 0
