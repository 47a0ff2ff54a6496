"""The settings of how load is spread over a cluster's brokers, by Pulsar's names."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import Feed, HandlerSettings, setting
from magnetar.base.values import Kind, at_least, between


def _minutes(text: str) -> str:
    return str(int(float(text) * 60))


@dataclass(frozen=True, slots=True)
class LoadSettings(HandlerSettings):
    """Load of clusters."""

    load_balancer_enabled: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether brokers tell each other of their load, and bundles are moved and split by it.",
        pulsar=("loadBalancerEnabled",),
    )
    load_shedding_enabled: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether bundles are moved from brokers with much to do to others.",
        dynamic=True,
        pulsar=("loadBalancerSheddingEnabled",),
    )
    load_report_interval_ms: int = setting(
        5000,
        Kind.INT,
        "Time between two measurements of a broker's load; it is reported when it has changed by a tenth.",
        unit="ms",
        rule=at_least(200),
        dynamic=True,
        pulsar=("loadBalancerReportUpdateMinIntervalMillis",),
    )
    load_shedding_interval_s: int = setting(
        60,
        Kind.INT,
        "Time between two looks at whether bundles are to be moved.",
        unit="s",
        rule=at_least(1),
        dynamic=True,
        pulsar=(Feed("loadBalancerSheddingIntervalMinutes", _minutes),),
    )
    load_shedding_grace_s: int = setting(
        1800,
        Kind.INT,
        "Time for which a bundle that was moved by load stays where it is.",
        unit="s",
        rule=at_least(0),
        dynamic=True,
        pulsar=(Feed("loadBalancerSheddingGracePeriodMinutes", _minutes),),
    )
    load_shedding_threshold_percent: int = setting(
        10,
        Kind.INT,
        "Points of processor usage above the brokers' average from which on a broker gives bundles away.",
        unit="%",
        rule=between(1, 100),
        dynamic=True,
        pulsar=("loadBalancerBrokerThresholdShedderPercentage",),
    )
    load_shedding_moves: int = setting(
        4,
        Kind.INT,
        "Bundles that are moved at one look, at most.",
        rule=at_least(1),
        dynamic=True,
    )
    bundle_split_enabled: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether a bundle with too many topics or too much load is split by itself.",
        dynamic=True,
        pulsar=("loadBalancerAutoBundleSplitEnabled",),
    )
    bundle_split_algorithm: str = setting(
        "range_equally_divide",
        Kind.STRING,
        "How: `range_equally_divide` or `topic_count_equally_divide`.",
        dynamic=True,
        pulsar=("defaultNamespaceBundleSplitAlgorithm",),
    )
    bundle_max_topics: int = setting(
        1000,
        Kind.INT,
        "Partitions of a bundle above which it is split.",
        rule=at_least(1),
        dynamic=True,
        pulsar=("loadBalancerNamespaceBundleMaxTopics",),
    )
    bundle_max_messages_per_s: int = setting(
        30_000,
        Kind.INT,
        "Messages a second, in and out, above which a bundle is split.",
        rule=at_least(1),
        dynamic=True,
        pulsar=("loadBalancerNamespaceBundleMaxMsgRate",),
    )
    bundle_max_mib_per_s: int = setting(
        100,
        Kind.INT,
        "Traffic, in and out, above which a bundle is split.",
        unit="MiB/s",
        rule=at_least(1),
        dynamic=True,
        pulsar=("loadBalancerNamespaceBundleMaxBandwidthMbytes",),
    )
    namespace_max_bundles: int = setting(
        128,
        Kind.INT,
        "Bundles of a namespace that are not exceeded by splitting.",
        rule=at_least(1),
        dynamic=True,
        pulsar=("loadBalancerNamespaceMaximumBundles",),
    )
