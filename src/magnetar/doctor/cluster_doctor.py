"""What is wrong with a cluster, and what to do. A function of what was seen (`magnetar.doctor.cluster_state`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from magnetar.doctor.cluster_state import MOST_LEDGERS, ClusterState

MAX_SKEW_MS = 2000
"""A clock that is further off moves retention, delayed delivery and the times of records."""
MAX_LATENCY_MS = 100.0


class Severity(StrEnum):
    """How bad it is."""

    error = "error"
    """Something does not work, or will not survive the next failure."""
    warning = "warning"


@dataclass(frozen=True, slots=True)
class ClusterFinding:
    """One thing that is wrong. ``kind`` is a word for programs; ``next_step`` says what to do."""

    severity: Severity
    kind: str
    what: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Expected:
    """What a broker's file says, to be compared with what is there; None and -1 where it says nothing."""

    cluster: str | None = None
    node_id: int = -1
    address: str | None = None
    """``host:port`` of the web service, or of the first listener: how the broker is known."""
    ensemble: int = -1


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was found, the worst first."""

    is_well: bool
    """Whether there is no error; there may be warnings."""
    findings: tuple[ClusterFinding, ...]


def diagnose(state: ClusterState, expected: Expected | None = None) -> Diagnosis:
    """Return what is wrong."""
    given = expected or Expected()
    found = [
        *_names(state, given),
        *_numbers(state, given),
        *_zookeeper(state),
        *_brokers(state),
        *_listeners(state),
        *_versions(state),
        *_clocks(state),
        *_bookies(state, given),
        *_bundles(state),
    ]
    found.sort(key=lambda each: each.severity is not Severity.error)
    return Diagnosis(all(each.severity is not Severity.error for each in found), tuple(found))


def _error(kind: str, what: str, next_step: str) -> ClusterFinding:
    return ClusterFinding(Severity.error, kind, what, next_step)


def _warning(kind: str, what: str, next_step: str) -> ClusterFinding:
    return ClusterFinding(Severity.warning, kind, what, next_step)


def _names(state: ClusterState, expected: Expected) -> Iterator[ClusterFinding]:
    if not state.names:
        yield _error(
            "no-cluster",
            f"{state.metadata} holds no cluster's metadata",
            "Look at the path behind the hosts; the first broker that starts there makes what it needs.",
        )
    elif expected.cluster is not None and expected.cluster not in state.names:
        yield _error(
            "cluster-name",
            f"{state.metadata} holds the metadata of cluster {', '.join(state.names)}, not of {expected.cluster!r}",
            "Set clusterName to that, or another path in metadataStoreUrl.",
        )


def _numbers(state: ClusterState, expected: Expected) -> Iterator[ClusterFinding]:
    by_number = defaultdict(list)
    for each in state.brokers:
        if each.node_id >= 0:
            by_number[each.node_id].append(each)
    for number, brokers in by_number.items():
        others = [each for each in brokers if state.claimed.get(number) != each.session]
        if len(brokers) > 1 or others:
            named = " and ".join(each.name for each in brokers)
            yield _error(
                "broker-id",
                f"{named} {'have' if len(brokers) > 1 else 'has'} the number {number}, which is another broker's",
                "Give each broker a node.id (Kafka's broker.id) of its own, and start it again.",
            )
        elif number == expected.node_id and expected.address not in (None, brokers[0].name):
            yield _error(
                "broker-id",
                f"broker {number} lives at {brokers[0].name}, and the file gives {expected.address} the same number",
                "Give it a node.id (Kafka's broker.id) of its own.",
            )


def _zookeeper(state: ClusterState) -> Iterator[ClusterFinding]:
    for each in state.zookeeper:
        if each.trouble:
            yield _warning(
                "zookeeper-server",
                f"ZooKeeper's server {each.server} does not answer: {each.trouble}",
                "Start it: the loss of more than half of them stops the whole cluster.",
            )
        elif each.latency_ms is not None and each.latency_ms > MAX_LATENCY_MS:
            yield _warning(
                "zookeeper-slow",
                f"ZooKeeper's server {each.server} takes {each.latency_ms:.0f} ms for a request on average",
                "Give its log (dataLogDir) a disk of its own, and look at its pauses for garbage collection.",
            )


def _brokers(state: ClusterState) -> Iterator[ClusterFinding]:
    if state.names and not any(each.node_id >= 0 for each in state.brokers):
        yield _error(
            "no-brokers", "no broker of Magnetar's lives", "Start one: magnetar broker --config FILE."
        )


def _listeners(state: ClusterState) -> Iterator[ClusterFinding]:
    for broker in state.brokers:
        for each in broker.endpoints:
            if each.trouble:
                yield _error(
                    "unreachable",
                    f"broker {broker.name} tells clients of listener {each.listener} to go to {each.address}, where"
                    f" nothing answers from here: {each.trouble}",
                    "Set advertised.listeners (advertisedListeners) to what clients can reach, or have them go by"
                    " way of magnetar proxy. If it is reached from where clients are, all is well.",
                )


def _versions(state: ClusterState) -> Iterator[ClusterFinding]:
    by_version = defaultdict(list)
    for each in state.brokers:
        if each.node_id >= 0:
            by_version[each.version].append(str(each.node_id))
    if len(by_version) > 1:
        said = "; ".join(f"{version} on {', '.join(ids)}" for version, ids in sorted(by_version.items()))
        yield _warning(
            "versions",
            f"brokers are of different versions: {said}",
            "Finish the upgrade, one broker at a time.",
        )


def _clocks(state: ClusterState) -> Iterator[ClusterFinding]:
    for each in state.brokers:
        if each.clock_ms is not None and abs(each.clock_ms) > MAX_SKEW_MS:
            way = "ahead of" if each.clock_ms > 0 else "behind"
            yield _warning(
                "clock",
                f"the clock of broker {each.node_id} is {abs(each.clock_ms) / 1000:.1f} s {way} ZooKeeper's",
                "Have chrony or ntpd set it: retention, delayed delivery and the times of records follow it.",
            )


def _bookies(state: ClusterState, expected: Expected) -> Iterator[ClusterFinding]:
    wanted = [each.quorums.get("ensemble", -1) for each in state.brokers]
    ensemble = max([expected.ensemble, *(each for each in wanted if isinstance(each, int))])
    writable, lost = state.writable_bookies, [each.bookie for each in state.bookies if each.state == "lost"]
    if not state.has_bookkeeper:
        yield _error(
            "no-bookkeeper",
            "no bookies were ever set up there",
            "Run `bookkeeper shell initnewcluster` once, or say where they are by bookkeeperMetadataServiceUri.",
        )
        return
    if writable < ensemble:
        yield _error(
            "bookies",
            f"{writable} bookies can be written to, and a ledger needs {ensemble}: no topic can be written to for long",
            f"Start bookies, or lower managedLedgerDefaultEnsembleSize to {max(writable, 1)} or less, and the quorums.",
        )
    elif writable == ensemble > 0:
        yield _warning(
            "bookies-spare",
            f"{writable} bookies can be written to, just what a ledger needs: none may fail",
            "Start another bookie, or lower managedLedgerDefaultEnsembleSize.",
        )
    for each in state.bookies:
        if each.state == "readonly":
            yield _warning(
                "bookie-readonly",
                f"bookie {each.bookie} takes nothing new",
                "Its disk is full, most likely: give it room, or have ledgers deleted sooner (retention).",
            )
    if lost:
        yield _warning(
            "bookie-lost",
            f"{len(lost)} bookies that were there are gone: {', '.join(lost)}",
            "Start them again. If one is gone for good: `bookkeeper shell recover`, then `decommissionbookie`.",
        )
    if state.under_replicated:
        more = " or more" if state.under_replicated >= MOST_LEDGERS else ""
        yield _warning(
            "under-replicated",
            f"{state.under_replicated}{more} ledgers have fewer copies than they should",
            "Auto-recovery copies them as long as it runs (`bookkeeper autorecovery`); look whether the number falls.",
        )
    elif lost and state.auditor is None:
        yield _warning(
            "no-auditor",
            "bookies are lost, and nobody looks which ledgers have too few copies now",
            "Run `bookkeeper autorecovery`, or set autoRecoveryDaemonEnabled=true for bookies.",
        )


def _bundles(state: ClusterState) -> Iterator[ClusterFinding]:
    alive = {each.node_id for each in state.brokers}
    unowned = [each.bundle for each in state.bundles if each.owner is None]
    if unowned and alive:
        named = ", ".join(unowned[:3]) + (" ..." if len(unowned) > 3 else "")
        yield _warning(
            "unowned",
            f"{len(unowned)} bundles are nobody's at this moment: {named}",
            "Ask again: a moment after a move that is as it should be. If it stays, look at the brokers' logs.",
        )
    ghosts = sorted(
        {each.owner for each in state.bundles if each.owner is not None and each.owner not in alive}
    )
    if ghosts:
        yield _warning(
            "owner-gone",
            f"bundles belong to brokers that do not live any more: {', '.join(map(str, ghosts))}",
            "Wait: ZooKeeper gives them free when those brokers' sessions end (metadataStoreSessionTimeoutMillis).",
        )
