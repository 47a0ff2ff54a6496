"""What a run's report tells of fields whose types changed so that their columns cannot take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.pipeline.jobs.spec import ProjectSpec, TopicSpec

if TYPE_CHECKING:
    from magnetar.pipeline.jobs.decode.placing import Moved


def moved_fields(project: ProjectSpec) -> tuple[str, ...]:
    """Return a line for each such field of each version; raise `SpecError` or ``RegistryError``."""
    found = []
    for topic in project.topics.values():
        for each in _moved(project, topic):
            dead = topic.changed_types == "dead_letters"
            what = "its records are dead letters" if dead else f"it goes to column {each.column}"
            found.append(
                f"{topic.decoded}: field {each.field} of schema {each.schema_id}: {each.reason}; {what}"
            )
    return tuple(found)


def _moved(project: ProjectSpec, topic: TopicSpec) -> tuple[Moved, ...]:
    if topic.format == "bytes":
        return ()
    if topic.format == "json":
        from magnetar.pipeline.jobs.decode.json import plan_json

        return plan_json(topic, project).moved
    from magnetar.pipeline.jobs.decode.decoder import plan

    return plan(topic, project).moved
