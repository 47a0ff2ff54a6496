"""Who has a schema and who refers to it is looked up, not looked for; it is what looking for it would find."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from magnetar.metadata import MemoryStore, MemoryTree
from magnetar.metadata.cache import MetadataCache
from magnetar.schema_registry.registry import Registry
from magnetar.schema_registry.schema import Reference, Schema, Version
from magnetar.schema_registry.store import RegistryChanges, RegistryContents, Subject

NAMES, NUMBERS, IDS = "abc", (1, 2), (1, 2, 3, 4)
REFERENCES = st.builds(Reference, st.just("r"), st.sampled_from(NAMES), st.sampled_from(NUMBERS))
SCHEMAS = st.builds(
    lambda references: Schema("AVRO", '"int"', tuple(references)), st.lists(REFERENCES, max_size=3)
)
VERSIONS = st.builds(Version, st.sampled_from(NUMBERS), st.sampled_from(IDS), st.booleans())
SUBJECTS = st.builds(lambda versions: Subject(tuple(versions)), st.lists(VERSIONS, max_size=3))
SCHEMA_STEPS = st.tuples(st.sampled_from(IDS), st.none() | SCHEMAS)
SUBJECT_STEPS = st.tuples(st.sampled_from(NAMES), st.none() | SUBJECTS)


def users(kept: RegistryContents, schema_id: int, *, deleted: bool) -> list[tuple[str, int]]:
    return [
        (name, each.version)
        for name in sorted(kept.subjects)
        for each in kept.subjects[name].versions
        if each.schema_id == schema_id and (deleted or not each.deleted)
    ]


def referrers(kept: RegistryContents, name: str, number: int) -> list[int]:
    return sorted(
        schema_id
        for schema_id, schema in kept.schemas.items()
        if any((each.subject, each.version) == (name, number) for each in schema.references)
        and users(kept, schema_id, deleted=False)
    )


def check(kept: RegistryContents) -> None:
    registry = Registry(kept)
    for schema_id in IDS:
        for deleted in (False, True):
            found = registry.users(schema_id, deleted=deleted)
            assert found == users(kept, schema_id, deleted=deleted)
    for name in NAMES:
        for number in NUMBERS:
            assert registry.referenced_by(name, number) == referrers(kept, name, number)
    assert all(kept.users.values()), "what nobody uses is let go of"
    assert all(kept.referrers.values())


@given(st.lists(SCHEMA_STEPS | SUBJECT_STEPS, max_size=12))
def test_who_has_a_schema_and_who_refers_to_it(
    steps: list[tuple[int | str, Schema | Subject | None]],
) -> None:
    asyncio.run(_whoever_writes(steps))


async def _whoever_writes(steps: list[tuple[int | str, Schema | Subject | None]]) -> None:
    """One registry changes everything; another one follows, and a third is read at the end."""
    tree = MemoryTree()
    caches = [MetadataCache(MemoryStore(tree)) for _ in range(3)]
    kept, following, again = (RegistryContents(cache, "public") for cache in caches)
    await kept.load()
    await following.load()
    for key, value in steps:

        def put(
            changes: RegistryChanges, key: int | str = key, value: Schema | Subject | None = value
        ) -> None:
            if isinstance(key, int):
                assert not isinstance(value, Subject)
                changes.schema(key, value)
            else:
                assert not isinstance(value, Schema)
                changes.subject(key, value)

        await kept.change(put)
        check(kept)
    await again.load()
    check(again)
    for _ in range(20):
        await asyncio.sleep(0)
    check(following)
    for other in (again, following):
        assert (other.users, other.referrers, other.subjects) == (kept.users, kept.referrers, kept.subjects)
    for cache in caches:
        await cache.close()
