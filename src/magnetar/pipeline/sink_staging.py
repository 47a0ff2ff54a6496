"""Where a batch waits until it is whole: files of record batches, and the decision which of them count.

    <stagingLocation>/<query id>/
        <batch id>/<task>-<attempt>-<uuid>.batches   what one attempt of one task wrote, as laid out below
        <batch id>.decided                           JSON: the attempts that count, who publishes them, and from where
        <batch id>.done                              the same file, renamed once all is in the topics

A staged file is a sequence of blocks, and ends with the number of its blocks after a topic length of 0xFFFF:

    2  length of the topic's name      then the name
    4  partition
    4  number of records
    4  length of the record batch      then the batch, which carries its own checksum

Numbers are big-endian. A file appears under its name only when it is whole and on disk; so does a decision, and only
the first one for a batch ever does. What attempts left that do not count is removed with the batch.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from struct import Struct
from typing import IO, TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from magnetar.client.cluster import Cluster
from magnetar.pipeline.sink_rows import outgoing

if TYPE_CHECKING:
    import pyarrow as pa

    from magnetar.pipeline.sink_options import SinkOptions

_NAME = Struct(">H")
_REST = Struct(">III")
_COUNT = Struct(">I")
_END = 0xFFFF


class StagedDamaged(Exception):
    """A staged file is not what a task wrote."""


class Block(NamedTuple):
    """One staged record batch: where it goes, how many records it has, and its bytes (None if they were skipped)."""

    topic: str
    partition: int
    records: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Target:
    """One partition of a decision: the first sequence there, and the offset that the log ended with before."""

    topic: str
    partition: int
    first_sequence: int
    offset: int
    topic_id: str


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """What one batch is. ``sequences`` has what follows in every partition that this producer ever wrote to."""

    batch_id: int
    producer_id: int
    producer_epoch: int
    files: tuple[str, ...]
    targets: tuple[Target, ...]
    sequences: tuple[tuple[str, int, int], ...]

    def encode(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()

    @classmethod
    def decode(cls, data: bytes) -> BatchDecision:
        content = json.loads(data)
        content["files"] = tuple(content["files"])
        content["targets"] = tuple(Target(**each) for each in content["targets"])
        content["sequences"] = tuple((t, p, s) for t, p, s in content["sequences"])
        return cls(**content)


class StagingDirectory:
    """The directory of one query (or of one ``txnAppId``)."""

    def __init__(self, root: Path, query: str) -> None:
        self.home = root / quote(query, safe="")

    def write(self, batch_id: int, name: str, blocks: Iterable[Block]) -> tuple[int, str]:
        """Write what an attempt has; give (number of records, the file's name within the staging directory)."""
        place = self.home / str(batch_id)
        place.mkdir(parents=True, exist_ok=True)
        # Spark counts attempts anew after a restart, and what a decision names must never be written over.
        name = f"{name}-{uuid.uuid4()}"
        path = place / f"{name}.batches"
        draft = place / f"{name}.draft"
        records = count = 0
        with draft.open("wb") as file:
            for block in blocks:
                _write_block(file, block)
                records += block.records
                count += 1
            file.write(_NAME.pack(_END) + _COUNT.pack(count))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        _sync(place)
        return records, f"{batch_id}/{path.name}"

    def read(self, name: str, *, data: bool = True) -> Iterator[Block]:
        """Yield the blocks of a staged file; raise `StagedDamaged` if it is not whole."""
        try:
            with (self.home / name).open("rb") as file:
                yield from _read_blocks(file, self.home / name, data)
        except FileNotFoundError:
            raise StagedDamaged(
                f"{self.home / name} is gone: driver and executors must share stagingLocation, and nobody else may "
                "clean it"
            ) from None

    # Decisions.

    def decide(self, decision: BatchDecision) -> BatchDecision | None:
        """Make this the decision of its batch, unless there is one; give the one that holds, None if it is done."""
        try:
            self._link(decision)
            return BatchDecision.decode(self._decided(decision.batch_id).read_bytes())
        except FileNotFoundError:
            if self.is_done(decision.batch_id):
                return None  # another driver was quicker, and has tidied up
            raise

    def _link(self, decision: BatchDecision) -> None:
        """Put a decision in its place if that is free."""
        path = self._decided(decision.batch_id)
        place = self.home / str(decision.batch_id)
        place.mkdir(exist_ok=True)
        draft = place / f"{uuid.uuid4()}.draft"  # among what is removed with the batch
        with draft.open("wb") as file:
            file.write(decision.encode())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        else:
            if self.is_done(decision.batch_id):
                # There was a decision; it was published while this one was drawn up, and is out of the way.
                path.unlink(missing_ok=True)
        finally:
            draft.unlink(missing_ok=True)
        _sync(self.home)

    def open_decisions(self) -> list[BatchDecision]:
        """Return the decisions that are not all published, oldest first."""
        found = []
        for path in sorted(self.home.glob("*.decided"), key=lambda path: int(path.stem)):
            if self.is_done(int(path.stem)):
                path.unlink(
                    missing_ok=True
                )  # a driver ended between drawing it up and seeing that it is not needed
            else:
                with suppress(FileNotFoundError):  # published by another driver just now
                    found.append(BatchDecision.decode(path.read_bytes()))
        return found

    def last_done(self) -> BatchDecision | None:
        """Return the newest batch that is in the topics."""
        while done := sorted(self.home.glob("*.done"), key=lambda path: int(path.stem)):
            with suppress(FileNotFoundError):  # a newer one has just replaced it
                return BatchDecision.decode(done[-1].read_bytes())
        return None

    def is_done(self, batch_id: int) -> bool:
        """Return whether a batch is in the topics."""
        done = self.last_done()
        return done is not None and done.batch_id >= batch_id

    def finish(self, decision: BatchDecision) -> None:
        """Note that a decision is published, and remove what it and those before it left."""
        path = self._decided(decision.batch_id)
        done = path.with_suffix(".done")
        if not done.exists():
            with suppress(FileNotFoundError):  # another driver, which shares the decision, was quicker
                path.rename(done)
            _sync(self.home)
        for old in self.home.glob("*.done"):
            if int(old.stem) < decision.batch_id:
                old.unlink(missing_ok=True)
        for place in self.home.iterdir():
            if place.name.isdigit() and int(place.name) <= decision.batch_id:
                shutil.rmtree(place, ignore_errors=True)

    def _decided(self, batch_id: int) -> Path:
        return self.home / f"{batch_id}.decided"


def stage_rows(
    iterator: Iterable[pa.RecordBatch],
    options: SinkOptions,
    staging: StagingDirectory,
    batch_id: int,
    name: str,
    *,
    first_partition: int,
) -> tuple[int, str]:
    """Stage a task's rows; give (number of records, the file's name)."""
    with Cluster(options.client) as cluster:

        def partitions_of(topic: str) -> int:
            return cluster.retrying(lambda: len(cluster.topic(topic, create=True).leaders))

        batches = outgoing(iterator, options, partitions_of, first_partition=first_partition)
        blocks = (Block(each.topic, each.partition, each.batch.records, each.batch.data) for each in batches)
        return staging.write(batch_id, name, blocks)


def _write_block(file: IO[bytes], block: Block) -> None:
    assert block.data is not None
    topic = block.topic.encode()
    file.write(_NAME.pack(len(topic)) + topic + _REST.pack(block.partition, block.records, len(block.data)))
    file.write(block.data)


def _read_blocks(file: IO[bytes], path: Path, data: bool) -> Iterator[Block]:
    count = 0

    def exactly(size: int) -> bytes:
        found = file.read(size)
        if len(found) != size:
            raise StagedDamaged(f"{path} is cut short")
        return found

    while True:
        (length,) = _NAME.unpack(exactly(2))
        if length == _END:
            break
        topic = exactly(length).decode()
        partition, records, size = _REST.unpack(exactly(_REST.size))
        if data:
            yield Block(topic, partition, records, exactly(size))
        else:
            file.seek(size, os.SEEK_CUR)
            yield Block(topic, partition, records, None)
        count += 1
    if _COUNT.unpack(exactly(4)) != (count,) or file.read(1):
        raise StagedDamaged(f"{path} does not have the {count} blocks it should have")


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
