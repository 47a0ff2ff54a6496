"""How long a start takes after kill -9 with much data on disk. Prints one line of JSON.

    python benchmarks/ledger_recovery.py [--gigabytes 10] [--partitions 4] [--entry-kb 16]
                                         [--flush os|always] [--dir DIR]

A child process appends through the storage engine and kills itself in the middle; then the data directory is opened
as a broker does: recover, open every partition, read its newest record. The data is deleted at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from magnetar.ledger.files.disk import RealDisk
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.port import Flush, LedgerPolicy
from magnetar.metadata import SqliteStore
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.entry import kafka_message_head

NOW_MS = 1_790_000_000_000


def names(partitions: int) -> list[str]:
    return [f"public/default/persistent/recovery-partition-{n}" for n in range(partitions)]


async def fill(data: Path, options: argparse.Namespace) -> None:
    """Append until there is enough, then die without a word."""
    store = SqliteStore(data / "metadata.sqlite")
    engine = FilesEngine(data, store, RealDisk())
    await engine.start()
    policy = LedgerPolicy(flush=Flush(options.flush))
    logs = [await engine.open(name, policy) for name in names(options.partitions)]
    count = options.entry_kb
    batch = encode_batch([PlainRecord(None, os.urandom(1000), (), NOW_MS) for _ in range(count)])
    message = [kafka_message_head(NOW_MS, count), batch]
    due = int(options.gigabytes * (1 << 30)) // len(batch)
    for number in range(due):
        appended = logs[number % len(logs)].append(message, messages=count, timestamp_ms=NOW_MS)
        if number % 64 == 0:
            await (appended.done or asyncio.sleep(0))
    os.kill(os.getpid(), signal.SIGKILL)


async def recover(data: Path, options: argparse.Namespace) -> dict[str, object]:
    began = time.perf_counter()
    store = SqliteStore(data / "metadata.sqlite")
    engine = FilesEngine(data, store, RealDisk())
    await engine.start()
    started = time.perf_counter()
    logs = [
        await engine.open(name, LedgerPolicy(flush=Flush(options.flush)))
        for name in names(options.partitions)
    ]
    for log in logs:
        assert await log.read(log.log_end_offset - 1, max_bytes=1)
    opened = time.perf_counter()
    size = sum(log.size() for log in logs)
    result = {
        "gigabytes": round(size / (1 << 30), 2),
        "partitions": len(logs),
        "flush": options.flush,
        "records": sum(log.log_end_offset for log in logs),
        "journal_s": round(started - began, 3),
        "open_s": round(opened - started, 3),
        "recovery_s": round(opened - began, 3),
    }
    await engine.close()
    store.blocking.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--entry-kb", type=int, default=16)
    parser.add_argument("--flush", default="os")
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--fill", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill is not None:
        asyncio.run(fill(options.fill, options))
        return
    data = Path(tempfile.mkdtemp(prefix="magnetar-recovery-", dir=options.dir))
    try:
        child = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--fill", str(data)], check=False)
        assert child.returncode == -signal.SIGKILL, "the child should have died"
        print(json.dumps(asyncio.run(recover(data, options))))
    finally:
        shutil.rmtree(data)


if __name__ == "__main__":
    main()
