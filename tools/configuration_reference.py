"""Write docs/configuration.md from settings and topic configurations; ``--check`` says whether it is current."""

from __future__ import annotations

import sys
from pathlib import Path

from magnetar.base.setting import SettingDef, definitions_of
from magnetar.base.values import Value, render
from magnetar.proxy.settings import ProxySettings
from magnetar.settings.kafka_dynamic import WITHOUT_EFFECT
from magnetar.settings.settings import Settings
from magnetar.topics.topic_config import CONFIGS, TopicConfigDef

DECLARED = Settings().with_parts((ProxySettings,)).declared
PAGE = Path(__file__).resolve().parent.parent / "docs" / "configuration.md"

HEAD = """# Configuration

*Made by `tools/configuration_reference.py`; change the settings' own descriptions instead of this page.*

Everything has a default that works. Settings come, the later the stronger, from

1. `--config FILE`: Kafka's `server.properties`, Pulsar's or KoP's `standalone.conf` or `broker.conf`, or a file
   with the names below. Which it is shows in its names. What has no meaning here is named in one warning at the start.
2. the environment in the way of container images: `KAFKA_NUM_PARTITIONS=4` or `KAFKA_CFG_NUM_PARTITIONS=4` as for
   Kafka, `PULSAR_PREFIX_topicLevelPoliciesEnabled=true` as for Pulsar. Names that are no setting are in the same
   warning; what start scripts and Kubernetes set for themselves (`KAFKA_OPTS`, `KAFKA_PORT_9092_TCP`) is passed over.
3. the environment: `MAGNETAR_` and the name in capitals with underscores, as `MAGNETAR_NUM_PARTITIONS=4`
4. `--set NAME=VALUE`, as often as needed

and, for those marked *while running*, from Kafka tools (`kafka-configs --entity-type brokers`), for one broker
or for all of them. A wrong value ends the start with an error that names the setting, the value and what is allowed.
Those marked *by listener* may be set for one Kafka listener, as `listener.name.NAME.SETTING`.

Of several names for one setting in the same source, the one named first below is taken.
"""

BROKERS_KEPT = """
### Changed while running, kept and shown, without effect

Some settings that a running Kafka broker can change (`kafka-configs --entity-type brokers --alter`) have no effect
here. They are validated as in Kafka, stored and shown. Settings that would protect a client or data are refused
instead.

| Configuration | Default | Why |
|---|---|---|
"""

TOPICS = """
## Topic configurations

Set with `kafka-topics --config`, `kafka-configs --entity-type topics` or `magnetar config`. A topic that does not say
follows its namespace's policies (`retention_policies`), then the broker's setting.

[Compaction](compaction.md) describes `cleanup.policy=compact` and its settings.

| Configuration | Default | Follows | What it does |
|---|---|---|---|
"""

KEPT = """
### Accepted, kept and shown, without effect

| Configuration | Default | Why |
|---|---|---|
"""


def page() -> str:
    """Return the whole page."""
    rows = "".join(_part(part) for part in DECLARED.parts)
    honoured = "".join(_honoured(config) for config in CONFIGS.values() if config.honoured)
    kept = "".join(
        f"| `{config.name}` | `{_shown(config.default)}` | {config.doc} |\n"
        for config in CONFIGS.values()
        if not config.honoured
    )
    brokers = "".join(
        f"| `{each.name}` | `{_shown(each.default)}` | {each.doc} |\n" for each in WITHOUT_EFFECT.values()
    )
    return f"{HEAD}{rows}{BROKERS_KEPT}{brokers}{TOPICS}{honoured}{KEPT}{kept}"


def _part(part: type) -> str:
    rows = "".join(_setting(setting) for setting in definitions_of(part).values())
    return f"\n## {part.__doc__.splitlines()[0].rstrip('.')}\n{rows}" if part.__doc__ else rows


def _setting(setting: SettingDef) -> str:
    unit = f" {setting.unit}" if setting.unit else ""
    facts = [f"default `{_shown(setting.default)}`{unit}", setting.kind.name.lower()]
    if setting.rule is not None:
        facts.append(setting.rule.demand.removeprefix("Value must be ").removeprefix("String must be "))
    if setting.dynamic:
        facts.append("*while running*")
    if setting.by_listener:
        facts.append("*by listener*")
    names = [("Kafka", setting.kafka), ("Pulsar, KoP", setting.pulsar)]
    told = [f"{whose}: " + ", ".join(f"`{feed.name}`" for feed in feeds) for whose, feeds in names if feeds]
    also = f"\nAlso from {'; '.join(told)}.\n" if told else ""
    return f"\n### `{setting.name}`\n\n{setting.doc}\n({'; '.join(facts)})\n{also}"


def _honoured(config: TopicConfigDef) -> str:
    follows = f"`{DECLARED.definitions[config.setting].name}`" if config.setting else ""
    return f"| `{config.name}` | `{_shown(config.default)}` | {follows} | {config.doc} |\n"


def _shown(value: Value) -> str:
    return render(value) or "(none)"


def main() -> int:
    """Write the page, or with ``--check`` give 1 if it is not what it should be."""
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
