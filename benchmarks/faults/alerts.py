"""The alerts of ``examples/monitoring/alerts.yml`` of each fault: `tests/docs/test_faults_page.py` wants one."""

from __future__ import annotations

from pathlib import Path

RULES = Path(__file__).parents[2] / "examples" / "monitoring" / "alerts.yml"
_BROKER_GONE = ("BrokerDown", "BrokersMissing")
_BOOKIE_GONE = ("BookiesReplaced", "LedgersUnderReplicated")
_NO_SESSION = ("ZooKeeperAway", "SessionsLost")
_MOVES = ("BundlesMove",)

ALERTS: dict[str, tuple[str, ...]] = {
    "kill -9 of a broker, which is away for two and a half sessions": _BROKER_GONE,
    "kill -9 of a broker, started again at once": ("BrokersRestart", "BundlesMove"),
    "a broker stands still (SIGSTOP) for half its session": ("RequestsAreSlow", "ZooKeeperIsSlow"),
    "a broker stands still for three times its session": (*_BROKER_GONE, "SessionsLost"),
    "kill -9 of a bookie, which is away for 5 s": _BOOKIE_GONE,
    "a bookie stands still for 5 s": ("JournalIsSlow", "BookiesReplaced"),
    "kill -9 of all bookies at once": ("BookiesTakeNothing", "BookiesRefuseEntries"),
    "kill -9 of a broker and of a bookie at once": (*_BROKER_GONE, *_BOOKIE_GONE),
    "ZooKeeper stands still for half a session": ("ZooKeeperIsSlow",),
    "ZooKeeper stands still for three times as long as sessions last": _NO_SESSION,
    "kill -9 of ZooKeeper, started again after 1 s": _NO_SESSION,
    "a broker and ZooKeeper are parted for half its session": ("ZooKeeperIsSlow", "ZooKeeperAway"),
    "a broker and ZooKeeper are parted for three times its session": _NO_SESSION,
    "a broker and a bookie are parted for 6 s": ("BookiesReplaced", "JournalIsSlow"),
    "a broker and all bookies are parted for 6 s": ("BookiesTakeNothing", "BookiesRefuseEntries"),
    "a bookie and all brokers are parted for 6 s": ("BookiesReplaced", "JournalIsSlow"),
    "a bookie and ZooKeeper are parted for two and a half of its sessions": ("LedgersUnderReplicated",),
    "a bookie is slow for 10 s: each read's worth of bytes is 0.1 s late": ("JournalIsSlow",),
    "a broker is slow for 10 s, likewise": ("RequestsAreSlow",),
    "ZooKeeper is slow for 10 s, likewise": ("ZooKeeperIsSlow",),
    "a bookie's journal's disk is full for 10 s": ("BookiesRefuseEntries", "BookiesReplaced"),
    "a bookie's ledgers' disk is full for 10 s": ("BookiesRefuseEntries", "BookiesReplaced"),
    "a broker is killed and comes back without its disk": ("BrokersRestart", *_BROKER_GONE),
    "a broker's clock jumps by a minute or an hour, and back after 10 s": ("Degraded",),
    "kill -9 of a client that is a process of its own": (
        "ConsumerGroupDoesNotMove",
        "TooLargeConsumerGroupLag",
    ),
    "all connections to a broker are broken, three times": ("ConnectionsDropped",),
    "no byte to or from a broker for 3 s, then its connections are broken": ("ConnectionsDropped",),
    "a bundle is unloaded": _MOVES,
    "a bundle is moved to another broker": _MOVES,
    "a bundle is split": _MOVES,
    "a broker ends in order and is started again": ("BrokersRestart", "BundlesMove"),
    "a rolling restart": ("BrokersRestart", "BundlesMove"),
}
