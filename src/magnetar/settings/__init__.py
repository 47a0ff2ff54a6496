"""All settings of a broker: one frozen dataclass for each part, and the names by which other programs' files give them.

A setting is declared once, with `magnetar.base.setting.setting`: type, default, limits, unit, a sentence, and the
Kafka and Pulsar names that set it. Parsing, `docs/configuration.md`, warnings and dynamic changes follow from that.

- `settings`: the record of all parts; a handler's own part is found by its type.
- `connection`, `security`, `naming`, `node`, `topic`, `metrics`, `offload`, `load`, `cluster`: the core's parts.
- `built_in`: the handlers, stores and engines that come with the broker, as entry points: by name, imported when used.
- `kafka_names`, `kafka_dynamic`: settings of Kafka that have no meaning here, so that they are not taken for mistakes.
- `principal_rules`: `ssl.principal.mapping.rules`, since a wrong rule is refused when settings are read.

Where values come from (files, environment, command line) is `magnetar.node.setting_sources`.

May import: `base` and below.
"""
