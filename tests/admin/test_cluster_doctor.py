"""Each thing that can be wrong with a cluster is found, alone, with what to do; a cluster that is well has nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace

import pytest

from magnetar.cli.app import run_app
from magnetar.doctor.cluster_doctor import Expected, Severity, diagnose
from magnetar.doctor.cluster_state import (
    BookieLine,
    BrokerLine,
    BundleLine,
    ClusterState,
    EndpointLine,
    ZooKeeperLine,
)


def broker(number: int, **other: object) -> BrokerLine:
    made = BrokerLine(
        number,
        f"host{number}:8080",
        "1.0",
        None,
        number == 1,
        (EndpointLine("PLAINTEXT", f"host{number}:9092"),),
        bundles=1,
        clock_ms=3,
        session=100 + number,
        quorums={"ensemble": 2, "writeQuorum": 2, "ackQuorum": 2},
    )
    return replace(made, **other)  # type: ignore[arg-type]


WELL = ClusterState(
    "zk:zk1:2181/east",
    ("east",),
    (broker(1), broker(2)),
    {1: 101, 2: 102},
    (
        BundleLine("public/default/0x00000000_0x80000000", 1, 4),
        BundleLine("public/default/0x80000000_0xffffffff", 2, 1),
    ),
    tuple(BookieLine(f"bookie{number}:3181", "writable") for number in range(3)),
    has_bookkeeper=True,
    auditor="bookie0:3181",
    under_replicated=0,
    zookeeper=(ZooKeeperLine("zk1:2181", "3.9.4", "leader", 0.5, 0),),
    seconds=0.1,
)
LOST = replace(WELL.bookies[2], state="lost")
ERROR, WARNING = Severity.error, Severity.warning


@pytest.mark.parametrize(
    ("kind", "severity", "state", "expected"),
    [
        ("cluster-name", ERROR, WELL, Expected(cluster="west")),
        ("no-cluster", ERROR, replace(WELL, names=()), None),
        (
            "broker-id",
            ERROR,
            replace(WELL, brokers=(broker(1), broker(1, name="other:8080", session=7))),
            None,
        ),
        ("broker-id", ERROR, replace(WELL, claimed={1: 101, 2: 7}), None),
        ("broker-id", ERROR, WELL, Expected(node_id=2, address="other:8080")),
        ("no-brokers", ERROR, replace(WELL, brokers=()), None),
        ("bookies", ERROR, replace(WELL, bookies=WELL.bookies[:1]), None),
        ("bookies", ERROR, WELL, Expected(ensemble=4)),
        ("bookies-spare", WARNING, replace(WELL, bookies=WELL.bookies[:2]), None),
        (
            "bookie-readonly",
            WARNING,
            replace(WELL, bookies=(*WELL.bookies, BookieLine("b:1", "readonly"))),
            None,
        ),
        ("bookie-lost", WARNING, replace(WELL, bookies=(*WELL.bookies, LOST)), None),
        ("no-auditor", WARNING, replace(WELL, bookies=(*WELL.bookies, LOST), auditor=None), None),
        ("under-replicated", WARNING, replace(WELL, under_replicated=7), None),
        ("no-bookkeeper", ERROR, replace(WELL, has_bookkeeper=False, bookies=()), None),
        (
            "unreachable",
            ERROR,
            replace(
                WELL, brokers=(broker(1, endpoints=(EndpointLine("SSL", "lost:1", "timed out"),)), broker(2))
            ),
            None,
        ),
        ("versions", WARNING, replace(WELL, brokers=(broker(1), broker(2, version="2.0"))), None),
        ("clock", WARNING, replace(WELL, brokers=(broker(1), broker(2, clock_ms=-5000))), None),
        (
            "zookeeper-server",
            WARNING,
            replace(WELL, zookeeper=(*WELL.zookeeper, ZooKeeperLine("zk2:2181", trouble="refused"))),
            None,
        ),
        (
            "zookeeper-slow",
            WARNING,
            replace(WELL, zookeeper=(ZooKeeperLine("zk1:2181", latency_ms=150.0),)),
            None,
        ),
        ("unowned", WARNING, replace(WELL, bundles=(*WELL.bundles, BundleLine("t/n/0_1", None, None))), None),
        ("owner-gone", WARNING, replace(WELL, bundles=(*WELL.bundles, BundleLine("t/n/0_1", 9, 1))), None),
    ],
)
def test_each_ailment_is_found(
    kind: str, severity: Severity, state: ClusterState, expected: Expected | None
) -> None:
    found = diagnose(state, expected)
    (finding,) = [each for each in found.findings if each.kind == kind]
    assert finding.severity is severity
    assert finding.next_step.endswith(".")
    assert found.is_well == (not any(each.severity is ERROR for each in found.findings))


def test_nothing_is_wrong_with_what_is_well() -> None:
    same = Expected(cluster="east", node_id=2, address="host2:8080", ensemble=2)
    assert diagnose(WELL).findings == diagnose(WELL, same).findings == ()
    assert diagnose(WELL).is_well


def test_errors_come_before_warnings() -> None:
    state = replace(WELL, brokers=(broker(1, version="2.0"), broker(2)), bookies=WELL.bookies[:1])
    assert [each.severity for each in diagnose(state).findings] == [ERROR, WARNING]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ([], 2, "nothing says which cluster"),
        (["--metadata", "zk:nowhere"], 2, "is not HOST:PORT"),
    ],
)
def test_what_cannot_be_meant_is_said(
    arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(["cluster", "status", *arguments]) == status
    assert said in capsys.readouterr().err


def test_a_zookeeper_that_is_not_there_is_named(
    capsys: pytest.CaptureFixture[str], free: Callable[[], int]
) -> None:
    port = free()
    assert run_app(["cluster", "doctor", "--metadata", f"zk:127.0.0.1:{port}/x", "--json"]) == 1
    assert f"no ZooKeeper answers at 127.0.0.1:{port}" in capsys.readouterr().err


@pytest.fixture
def free() -> Callable[[], int]:
    def bound() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return bound
