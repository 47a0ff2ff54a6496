"""kcat, the command line of librdkafka (Debian's package)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from command import Running, output
from harness import PARTITIONS, T0, VOLUME, complete, control, fresh, numbered, run, same, until


def kcat(bootstrap: str, *arguments: str, text: str | None = None) -> str:
    return output(["kcat", "-b", bootstrap, "-m", "15", *arguments], text)


def produce(bootstrap: str, topic: str, lines: list[str], *arguments: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, *arguments, text="\n".join(lines))


def produce_and_stay(bootstrap: str, topic: str, lines: list[str], *arguments: str) -> None:
    """The same, but the input stays open for a while: with acks=0 kcat leaves any broker with records unsent."""
    command = ["kcat", "-b", bootstrap, "-P", "-t", topic, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("".join(f"{line}\n" for line in lines))
        process.stdin.flush()
        time.sleep(15)
    same(process.returncode, 0, "kcat's status")


def read(bootstrap: str, topic: str, *arguments: str) -> list[dict]:
    """Every record of the topic, as kcat's JSON."""
    printed = kcat(bootstrap, "-C", "-t", topic, "-e", "-q", "-J", *(arguments or ("-o", "beginning")))
    return [json.loads(line) for line in printed.splitlines()]


def produce_consume(bootstrap: str) -> str:
    topic = fresh("kcat")
    produce(
        bootstrap, topic, [f"key-{i % 50}:{i}" for i in range(VOLUME)], "-K:", "-X", "enable.idempotence=true"
    )
    got = read(bootstrap, topic)
    for key in range(50):
        same(
            [m["payload"] for m in got if m["key"] == f"key-{key}"],
            [str(i) for i in range(key, VOLUME, 50)],
            f"key {key}",
        )
    return f"{len({m['partition'] for m in got})} partitions, and the topic was created on first use"


def headers(bootstrap: str) -> None:
    topic = fresh("kcat")
    produce(bootstrap, topic, ["x"], "-H", "trace=one", "-H", "trace=two", "-H", "empty=", "-H", "none")
    same(
        read(bootstrap, topic)[0]["headers"],
        ["trace", "one", "trace", "two", "empty", "", "none", None],
        "headers",
    )


def nulls(bootstrap: str) -> None:
    topic = fresh("kcat")
    produce(bootstrap, topic, ["no key"])
    produce(bootstrap, topic, ["tombstone:"], "-K:", "-Z")
    got = [(m["key"], m["payload"]) for m in sorted(read(bootstrap, topic), key=lambda m: m["ts"])]
    same(got, [(None, "no key"), ("tombstone", None)], "keys and values")


def codec(name: str) -> Callable[[str], None]:
    def check(bootstrap: str) -> None:
        topic, lines = fresh(name), [f"{i} " + "a line that repeats itself " * 8 for i in range(VOLUME)]
        produce(bootstrap, topic, lines, "-p", "0", "-X", f"compression.codec={name}", "-X", "linger.ms=50")
        same([m["payload"] for m in read(bootstrap, topic)], lines, "values")

    check.__name__ = f"codec_{name}"
    return check


def acks(name: str) -> Callable[[str], None]:
    def check(bootstrap: str) -> None:
        topic = fresh("acks")
        kcat(bootstrap, "-L", "-t", topic)  # which makes it
        time.sleep(2)  # with acks=0 nobody tells that a partition has no leader yet
        ways = {b"big": ("linger.ms=20",), b"single": ("linger.ms=0", "batch.num.messages=1")}

        def send(way: bytes) -> None:
            lines = [value.decode() for value in numbered(way)]
            options = [option for each in (f"acks={name}", *ways[way]) for option in ("-X", each)]
            (produce_and_stay if name == "0" else produce)(bootstrap, topic, lines, *options)

        with ThreadPoolExecutor() as threads:
            list(threads.map(send, ways))
        got = [(m["partition"], m["payload"].encode()) for m in read(bootstrap, topic)]
        complete(got, dict.fromkeys(ways, VOLUME // 2))
        same(len({partition for partition, _ in got}), PARTITIONS, "partitions")

    check.__name__ = f"acks_{name}"
    return check


def idempotent(bootstrap: str) -> None:
    topic = fresh("kcat")
    options = ("-X", "enable.idempotence=true", "-X", "batch.num.messages=20")
    produce(bootstrap, topic, [str(i) for i in range(VOLUME)], "-p", "0", *options)
    same(
        [(m["offset"], m["payload"]) for m in read(bootstrap, topic)],
        [(i, str(i)) for i in range(VOLUME)],
        "records",
    )


def restart(bootstrap: str) -> None:
    topic, group = fresh("kcat"), fresh("group")
    lines = [value.decode() for value in numbered(b"restart")]
    produce(bootstrap, topic, lines[:5000], "-X", "enable.idempotence=true")
    member = ("-G", group, "-q", "-X", "auto.offset.reset=earliest", "-X", "enable.auto.commit=true")
    first = kcat(bootstrap, *member, "-c", "5000", topic).splitlines()
    same(len(set(first)), 5000, "what the group read before the restart")
    control("restart")
    produce(bootstrap, topic, lines[5000:], "-X", "enable.idempotence=true")
    rest = kcat(bootstrap, *member, "-c", str(len(lines) - 5000), topic).splitlines()
    same(sorted(rest), sorted(lines[5000:]), "what the group reads after the restart")
    got = read(bootstrap, topic)
    complete([(m["partition"], m["payload"].encode()) for m in got], {b"restart": len(lines)})


def group_eager(bootstrap: str) -> None:
    topic, group = fresh("kcat"), fresh("group")
    produce(bootstrap, topic, [str(i) for i in range(VOLUME)])
    command = ["kcat", "-b", bootstrap, "-G", group, "-u", "-X", "auto.offset.reset=earliest", topic]

    def has(member: Running) -> set[str]:
        """The partitions that it was assigned last; kcat reads on without committing what it was assigned before."""
        told = [x for x in list(member.lines) if x.startswith("% Group") and "assigned: " in x]
        return set(told[-1].partition("assigned: ")[2].split(", ")) if told else set()

    def read_by(*members: Running) -> set[int]:
        return {int(x) for each in members for x in list(each.lines) if x.isdigit()}

    with Running(command) as first:
        with Running(command) as second:
            until(
                "both members to share", lambda: has(first) and has(second) and not has(first) & has(second)
            )
            same(len(has(first) | has(second)), PARTITIONS, "partitions of both")
            until("all records", lambda: len(read_by(first, second)) >= VOLUME)
            values = sorted(read_by(first, second))  # a rebalance may bring some twice
            same(values, list(range(VOLUME)), "records of the group")
        until("the first one to have what the second had", lambda: len(has(first)) == PARTITIONS)
        produce(bootstrap, topic, [str(i) for i in range(VOLUME, VOLUME + 1000)])
        later = set(range(VOLUME, VOLUME + 1000))
        until("what came later to be read by who stayed", lambda: later <= read_by(first))


def commit_resume(bootstrap: str) -> None:
    topic, group = fresh("kcat"), fresh("group")
    produce(bootstrap, topic, [str(i) for i in range(20)], "-p", "0")
    member = ("-G", group, "-q", "-X", "auto.offset.reset=earliest")
    first = kcat(bootstrap, *member, "-c", "10", topic).split()
    second = kcat(bootstrap, *member, "-c", "10", topic).split()
    same(first + second, [str(i) for i in range(20)], "values of two runs")


def seek_ends(bootstrap: str) -> None:
    topic = fresh("kcat")
    produce(bootstrap, topic, [str(i) for i in range(10)], "-p", "0")
    same([m["offset"] for m in read(bootstrap, topic, "-o", "5")], [5, 6, 7, 8, 9], "from an offset")
    same([m["offset"] for m in read(bootstrap, topic, "-o", "-3")], [7, 8, 9], "the last three")
    same(read(bootstrap, topic, "-o", "end"), [], "from the end")


def seek_timestamp(bootstrap: str) -> None:
    topic = fresh("kcat")
    produce(bootstrap, topic, ["one", "two"], "-p", "0")
    time.sleep(0.05)
    produce(bootstrap, topic, ["three"], "-p", "0")
    first, _, last = (m["ts"] for m in read(bootstrap, topic))
    found = [kcat(bootstrap, "-Q", "-t", f"{topic}:0:{t}").split()[-1] for t in (T0, first, last)]
    same(found, ["0", "0", "2"], "offsets by time")
    since = read(bootstrap, topic, "-p", "0", "-o", f"s@{last}")
    same([m["payload"] for m in since], ["three"], "from a time")


def cluster(bootstrap: str) -> str:
    described = json.loads(kcat(bootstrap, "-L", "-J"))
    same(len(described["brokers"]) >= 1, True, "brokers")
    return f"{len(described['brokers'])} broker"


def version() -> str:
    text = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"Version (\S+) .*librdkafka (\S+)", text)
    assert found
    return f"{found[1]} (librdkafka {found[2]})"


CODECS = [codec(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")]
ACKS = [acks(name) for name in ("0", "1", "all")]
CHECKS = [produce_consume, headers, nulls, *CODECS, *ACKS, idempotent, restart, group_eager, commit_resume, seek_ends,
          seek_timestamp, cluster]  # fmt: skip

if __name__ == "__main__":
    run("kcat", version(), CHECKS)
    os._exit(0)  # a client thread that hangs must not keep the run
