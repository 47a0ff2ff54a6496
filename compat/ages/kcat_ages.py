"""kcat, as the distribution has it."""

from __future__ import annotations

import subprocess
import sys

from program import Started, key, number_of, serve, value

started = Started(sys.argv[1:])


def kcat(*arguments: str, text: str | None = None) -> str:
    command = ["kcat", "-b", started.bootstrap, "-X", "topic.metadata.refresh.interval.ms=1000", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{done.returncode}: {done.stderr[-300:]}")
    return done.stdout


def produce(topic: str, codec: str, first: str, end: str, how: str) -> None:
    lines = [f"{key(i).decode()}|{value(i).decode()}\n" for i in range(int(first), int(end))]
    once = f"enable.idempotence={str(how == 'idempotent').lower()}"
    wanted = ("-X", f"compression.codec={codec}", "-X", "linger.ms=20", "-X", once)
    kcat("-P", "-t", topic, "-p", "0", "-K", "|", *wanted, text="".join(lines))


def read(topic: str, group: str, count: str, isolation: str) -> dict[str, list[int]]:
    wanted = ("-X", "auto.offset.reset=earliest", "-X", f"isolation.level={isolation}")
    text = kcat("-G", group, "-q", *wanted, "-X", "allow.auto.create.topics=true", "-c", count, topic)
    return {"numbers": [number_of(line.encode()) for line in text.splitlines()]}


def time(topic: str, at: str) -> dict[str, int]:
    return {"offset": int(kcat("-Q", "-t", f"{topic}:0:{at}").split()[-1])}


serve({each.__name__: each for each in (produce, read, time)})
