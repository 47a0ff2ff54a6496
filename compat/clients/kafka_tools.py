"""Kafka's own command-line tools, as an operator types them."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from command import Failed, Running, output
from harness import (
    COMPRESSIBLE,
    PARTITIONS,
    VOLUME,
    Check,
    complete,
    control,
    fresh,
    numbered,
    run,
    same,
    until,
)

TOOLS = str(Path(__file__).resolve().parent.parent / "kafka-tools.sh")


def tool(name: str, bootstrap: str, *arguments: str, text: str | None = None) -> str:
    return output([TOOLS, name, "--bootstrap-server", bootstrap, *arguments], text)


def new_topic(bootstrap: str, prefix: str, partitions: int = 1, *arguments: str) -> str:
    name = fresh(prefix)
    tool("topics", bootstrap, "--create", "--topic", name, "--partitions", str(partitions), *arguments)
    return name


def produce(bootstrap: str, topic: str, lines: list[str], *arguments: str) -> None:
    tool("console-producer", bootstrap, "--topic", topic, *arguments, text="".join(f"{x}\n" for x in lines))


def read(bootstrap: str, topic: str, count: int, *arguments: str) -> list[str]:
    limits = ("--max-messages", str(count), "--timeout-ms", "20000")
    start = () if "--offset" in arguments or "--group" in arguments else ("--from-beginning",)
    return tool("console-consumer", bootstrap, "--topic", topic, *limits, *start, *arguments).splitlines()


def properties(*pairs: str) -> list[str]:
    return [part for pair in pairs for part in ("--formatter-property", pair)]


def produce_consume(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "tools", PARTITIONS)
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    produce(bootstrap, topic, [f"key-{i % 10}:{i}" for i in range(VOLUME)], *keyed)
    got = read(bootstrap, topic, VOLUME, *properties("print.key=true", "key.separator=:"))
    for key in range(10):
        wanted = [f"key-{key}:{i}" for i in range(key, VOLUME, 10)]
        same([x for x in got if x.startswith(f"key-{key}:")], wanted, f"key {key}")


def headers(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "tools")
    reader = ("parse.headers=true", "headers.delimiter=|", "headers.separator=;", "headers.key.separator==")
    produce(
        bootstrap,
        topic,
        ["trace=one;trace=two|x"],
        *(p for pair in reader for p in ("--reader-property", pair)),
    )
    got = read(bootstrap, topic, 1, *properties("print.headers=true", "headers.separator=;"))
    same(got, ["trace:one;trace:two\tx"], "headers")


def nulls(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "tools")
    reader = ("parse.key=true", "key.separator=:", "null.marker=NIL")
    produce(
        bootstrap, topic, ["a:NIL", "NIL:b"], *(p for pair in reader for p in ("--reader-property", pair))
    )
    got = read(bootstrap, topic, 2, *properties("print.key=true", "key.separator=:"))
    same(got, ["a:null", "null:b"], "keys and values")


def codec(name: str) -> Check:
    def check(bootstrap: str) -> None:
        topic, lines = new_topic(bootstrap, name), [value.decode().strip() for value in COMPRESSIBLE]
        produce(bootstrap, topic, lines, "--compression-codec", name)
        same(read(bootstrap, topic, VOLUME), lines, "values")

    check.__name__ = f"codec_{name}"
    return check


def acks(name: str) -> Check:
    def check(bootstrap: str) -> None:
        topic = new_topic(bootstrap, "acks", PARTITIONS)
        time.sleep(2)  # with acks=0 nobody tells that a partition has no leader yet
        ways = {b"big": ("linger.ms=20",), b"single": ("linger.ms=0", "batch.size=0")}

        def send(way: bytes) -> None:
            lines = [value.decode() for value in numbered(way)]
            wanted = ("enable.idempotence=false", "max.in.flight.requests.per.connection=1", *ways[way])
            options = [option for each in wanted for option in ("--command-property", each)]
            produce(bootstrap, topic, lines, "--request-required-acks", name, *options)

        with ThreadPoolExecutor() as threads:
            list(threads.map(send, ways))
        got = [
            line.split("\t") for line in read(bootstrap, topic, VOLUME, *properties("print.partition=true"))
        ]
        found = [(int(partition.partition(":")[2]), value.encode()) for partition, value in got]
        complete(found, dict.fromkeys(ways, VOLUME // 2))

    check.__name__ = f"acks_{name}"
    return check


def large_message(bootstrap: str) -> None:
    topic, line = new_topic(bootstrap, "tools"), "0123456789" * 90_000
    produce(bootstrap, topic, [line])
    same(read(bootstrap, topic, 1) == [line], True, "the large value is equal")


def idempotent(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "tools")
    printed = tool("verifiable-producer", bootstrap, "--topic", topic, "--max-messages", str(VOLUME))
    acked = [json.loads(x) for x in printed.splitlines() if "producer_send_success" in x]
    same(sorted(x["offset"] for x in acked), list(range(VOLUME)), "offsets told to the verifiable producer")
    same(read(bootstrap, topic, VOLUME), [str(i) for i in range(VOLUME)], "values")


def restart(bootstrap: str) -> None:
    topic, group = new_topic(bootstrap, "restart", PARTITIONS), fresh("group")
    lines = [value.decode() for value in numbered(b"restart")]
    earliest = ("--group", group, "--command-property", "auto.offset.reset=earliest")
    produce(bootstrap, topic, lines[:5000])
    before = read(bootstrap, topic, 5000, *earliest)
    control("restart")
    produce(bootstrap, topic, lines[5000:])
    after = read(bootstrap, topic, len(lines) - 5000, *earliest)
    same(
        (sorted(before), sorted(after)), (sorted(lines[:5000]), sorted(lines[5000:])), "what the group reads"
    )
    same(sorted(read(bootstrap, topic, len(lines))), sorted(lines), "values")


def group_eager(bootstrap: str) -> None:
    topic, group = new_topic(bootstrap, "tools", 4), fresh("group")
    command = [TOOLS, "verifiable-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group,
               "--reset-policy", "earliest", "--max-messages", "1000000"]  # fmt: skip

    def owned(member: Running) -> int:
        events = [json.loads(x) for x in member.lines if "partitions_" in x and x.startswith("{")]
        return len(events[-1]["partitions"]) if events and events[-1]["name"] == "partitions_assigned" else 0

    def consumed(*members: Running) -> int:
        lines = [x for m in members for x in m.lines if '"records_consumed"' in x and x.startswith("{")]
        return sum(json.loads(x)["count"] for x in lines)

    with Running(command) as first:
        until("the first member to own everything", lambda: owned(first) == 4)
        with Running(command) as second:
            until("both to own two partitions", lambda: (owned(first), owned(second)) == (2, 2))
            produce(bootstrap, topic, [str(i) for i in range(VOLUME)])
            until("all records", lambda: consumed(first, second) >= VOLUME)
            same(consumed(first, second), VOLUME, "records of the group")
        until("the first member to own everything again", lambda: owned(first) == 4)


def commit_resume(bootstrap: str) -> None:
    topic, group = new_topic(bootstrap, "tools"), fresh("group")
    produce(bootstrap, topic, [str(i) for i in range(20)])
    earliest = ("--group", group, "--command-property", "auto.offset.reset=earliest")
    both = read(bootstrap, topic, 10, *earliest) + read(bootstrap, topic, 10, *earliest)
    same(both, [str(i) for i in range(20)], "values of two runs")


def seek_ends(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "tools")
    produce(bootstrap, topic, [str(i) for i in range(10)])
    for at, expected in (("earliest", 0), ("latest", 10), ("max-timestamp", None)):
        found = tool("get-offsets", bootstrap, "--topic", topic, "--time", at).strip()
        same(found.startswith(f"{topic}:0:"), True, at)
        if expected is not None:
            same(found, f"{topic}:0:{expected}", at)
    same(read(bootstrap, topic, 3, "--partition", "0", "--offset", "7"), ["7", "8", "9"], "from an offset")


def seek_timestamp(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "tools")
    produce(bootstrap, topic, [str(i) for i in range(100)])
    time.sleep(0.01)
    between = str(round(time.time() * 1000))
    produce(bootstrap, topic, [str(i) for i in range(100)])
    for at, row in (("1", f"{topic}:0:0"), (between, f"{topic}:0:100"), ("99999999999999", "")):
        found = tool("get-offsets", bootstrap, "--topic", topic, "--time", at).strip()
        same(found, row, f"offset at {at} ms")


def topics(bootstrap: str) -> None:
    name = new_topic(bootstrap, "tools", 3)
    same(name in tool("topics", bootstrap, "--list").split(), True, "the topic is listed")
    described = tool("topics", bootstrap, "--describe", "--topic", name)
    same(re.findall(r"PartitionCount: (\d+)", described), ["3"], "partition count")
    same(len(re.findall(r"Leader: \d", described)), 3, "leaders")
    tool("topics", bootstrap, "--delete", "--topic", name)
    until("the topic to be gone", lambda: name not in tool("topics", bootstrap, "--list").split(), pause=1)


def partitions(bootstrap: str) -> None:
    name = new_topic(bootstrap, "tools", 2)
    tool("topics", bootstrap, "--alter", "--topic", name, "--partitions", "5")
    same(
        "PartitionCount: 5" in tool("topics", bootstrap, "--describe", "--topic", name),
        True,
        "five partitions",
    )


def configs_describe(bootstrap: str) -> None:
    name = new_topic(bootstrap, "tools", 1, "--config", "retention.ms=12345678")
    found = tool(
        "configs", bootstrap, "--describe", "--all", "--entity-type", "topics", "--entity-name", name
    )
    same("retention.ms=12345678" in found, True, "retention.ms")
    same("cleanup.policy=delete" in found, True, "cleanup.policy")


def configs_alter(bootstrap: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", new_topic(bootstrap, "tools"))
    tool("configs", bootstrap, "--alter", *entity, "--add-config", "retention.ms=7654321")
    same("retention.ms=7654321" in tool("configs", bootstrap, "--describe", *entity), True, "the new value")
    tool("configs", bootstrap, "--alter", *entity, "--delete-config", "retention.ms")
    same(
        "retention.ms=" in tool("configs", bootstrap, "--describe", *entity),
        False,
        "the setting is still there",
    )


def committed_group(bootstrap: str) -> tuple[str, str]:
    topic, group = new_topic(bootstrap, "tools"), fresh("group")
    produce(bootstrap, topic, [str(i) for i in range(10)])
    read(bootstrap, topic, 4, "--group", group, "--command-property", "auto.offset.reset=earliest")
    return topic, group


def groups(bootstrap: str) -> None:
    topic, group = committed_group(bootstrap)
    same(group in tool("consumer-groups", bootstrap, "--list").split(), True, "the group is listed")
    described = tool("consumer-groups", bootstrap, "--describe", "--group", group)
    row = next(x.split() for x in described.splitlines() if x.startswith(group))
    same(row[1:6], [topic, "0", "4", "10", "6"], "topic, partition, offset, end, lag")
    state = tool("consumer-groups", bootstrap, "--describe", "--group", group, "--state")
    same("Empty" in state, True, "the state")


def groups_delete(bootstrap: str) -> None:
    topic, group = committed_group(bootstrap)
    reset = ("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    tool("consumer-groups", bootstrap, "--group", group, *reset)
    tool("consumer-groups", bootstrap, "--delete-offsets", "--group", group, "--topic", topic)
    printed = tool("consumer-groups", bootstrap, "--delete", "--group", group)
    same("was successful" in printed or "were successful" in printed, True, printed)


def delete_records(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "tools")
    for i in range(3):
        produce(bootstrap, topic, [str(i)])
    with tempfile.NamedTemporaryFile("w", suffix=".json") as plan:
        json.dump({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 2}]}, plan)
        plan.flush()
        printed = tool("delete-records", bootstrap, "--offset-json-file", plan.name)
    same("low_watermark: 2" in printed, True, printed)


def cluster(bootstrap: str) -> str:
    versions = tool("broker-api-versions", bootstrap)
    usable = re.findall(r"^\s+(\w+)\((\d+)\): (\d+) to (\d+) \[usable: (\d+)\]", versions, re.M)
    same(len(usable) > 20, True, "usable APIs: " + versions[:300])
    named = output([TOOLS, "cluster", "cluster-id", "--bootstrap-server", bootstrap]).strip()
    same(named.startswith("Cluster ID: "), True, named)
    return f"{len(usable)} APIs"


def log_dirs(bootstrap: str) -> None:
    topic = new_topic(bootstrap, "tools")
    produce(bootstrap, topic, ["x" * 10_000])
    printed = tool("log-dirs", bootstrap, "--describe", "--topic-list", topic)
    found = json.loads(next(x for x in printed.splitlines() if x.startswith("{")))
    sizes = [p["size"] for b in found["brokers"] for d in b["logDirs"] for p in d["partitions"]]
    same(len(sizes) == 1 and sizes[0] >= 10_000, True, f"size {sizes}")


def errors(bootstrap: str) -> None:
    name = new_topic(bootstrap, "tools", 2)
    for words, arguments in (
        ("would not be an increase", ("--alter", "--topic", name, "--partitions", "1")),
        ("already exists", ("--create", "--topic", name)),
        ("does not exist", ("--describe", "--topic", fresh("none"))),
    ):
        try:
            tool("topics", bootstrap, *arguments)
        except Failed as error:
            same(words in str(error), True, str(error))
        else:
            raise AssertionError(f"no error: {words}")


def perf(bootstrap: str) -> str:
    topic = new_topic(bootstrap, "perf", 2)
    load = ["--topic", topic, "--num-records", "20000", "--record-size", "200", "--throughput", "-1"]
    printed = output([TOOLS, "producer-perf-test", *load, "--bootstrap-server", bootstrap])
    same("20000 records sent" in printed, True, printed)
    read_back = output([TOOLS, "consumer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic,
                        "--num-records", "20000", "--timeout", "20000"])  # fmt: skip
    same(read_back.splitlines()[-1].split(", ")[4], "20000", "records that the performance tool read")
    return printed.strip().splitlines()[-1].split(",")[1].strip()


CODECS = [codec(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")]
ACKS = [acks(name) for name in ("0", "1", "all")]
CHECKS = [produce_consume, headers, nulls, *CODECS, large_message, *ACKS, idempotent, restart, group_eager,
          commit_resume, seek_ends, seek_timestamp, topics, partitions, configs_describe, configs_alter,
          groups, groups_delete, delete_records, cluster, log_dirs, errors, perf]  # fmt: skip

if __name__ == "__main__":
    run("Kafka's command-line tools", os.environ.get("KAFKA_TOOLS_VERSION", "4.4.0"), CHECKS)
    os._exit(0)  # a client thread that hangs must not keep the run
