"""What a record costs as topics, partitions, connections, workers and brokers grow: docs/scaling.md.

    python -m benchmarks.scaling [--json FILE] [--only PART ...]    # such as topics, workers, takeover
    python -m benchmarks.scaling --page                             # write the page from benchmarks/scaling.json

Processor time of the broker's processes is measured, not how fast records pass: that holds beside other work too.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.peers.magnetar import MagnetarOs
from benchmarks.peers.processes import cpu_s, family, rss_mb
from benchmarks.thin import ThinClient
from magnetar.records.batch import PlainRecord, encode_batch

RESULTS = Path(__file__).with_name("scaling.json")
PAGE = Path(__file__).parent.parent / "docs" / "scaling.md"
TEMPLATE = Path(__file__).with_name("scaling.md")
IMAGE = "scaling.png"
TOPICS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
PARTITIONS = (1, 10, 100, 1000, 10_000)
CONNECTIONS = (1, 10, 100, 300, 1000, 3000)
PROCESSES = (1, 2, 3)
TAKEOVER = (100, 300, 1000)
HELD_OUT = {"topics": (300, 100_000), "partitions": (100, 10_000), "connections": (100, 3000)}
"""What the model is not told, and is compared with."""
ASKED = {"topics": (1_000_000,), "partitions": (100_000,), "connections": (30_000,)}
CALLS = 4000
_BATCH = encode_batch([PlainRecord(None, b"x" * 100, timestamp=1_700_000_000_000)])


def _asked(pids: Sequence[int], calls: Sequence[Callable[[], object]]) -> dict[str, float]:
    """Make calls one after the other: microseconds of the processor's for each, and the wait."""
    before, waits = cpu_s(pids), []
    for call in calls:
        began = time.perf_counter()
        call()
        waits.append(time.perf_counter() - began)
    used = cpu_s(pids) - before
    waits.sort()
    return {
        "cpu_us": 1e6 * used / len(calls),
        "p50_ms": 1e3 * waits[len(waits) // 2],
        "p99_ms": 1e3 * waits[int(0.99 * len(waits))],
    }


def _measured(
    server: MagnetarOs, clients: Sequence[ThinClient], places: Sequence[tuple[str, int]]
) -> dict[str, Any]:
    """Produce to and fetch from random places; each has had one record before."""
    dice = random.Random(1)
    work = [(dice.choice(places), clients[number % len(clients)]) for number in range(CALLS)]

    def produce(place: tuple[str, int], client: ThinClient) -> Callable[[], object]:
        return lambda: client.send_batch(*place, _BATCH)

    def fetch(place: tuple[str, int], client: ThinClient) -> Callable[[], object]:
        return lambda: client.fetch(*place, 0, 200)

    pids = [server.pid]
    return {
        "produce": _asked(pids, [produce(*each) for each in work]),
        "fetch": _asked(pids, [fetch(*each) for each in work]),
        "rss_mb": rss_mb(pids),
        "idle_cpu_percent": _idle(pids),
    }


def _idle(pids: Sequence[int], seconds: float = 5) -> float:
    before = cpu_s(pids)
    time.sleep(seconds)
    return 100 * (cpu_s(pids) - before) / seconds


def topics(data: Path) -> Iterator[dict[str, Any]]:
    """One broker, one connection, topics of one partition: one broker for all points, which grows."""
    with MagnetarOs(data) as server, ThinClient.to(server.address) as client:
        empty, places = rss_mb([server.pid]), list[tuple[str, int]]()
        for count in TOPICS:
            fresh = [f"topic-{number}" for number in range(len(places), count)]
            for first in range(0, len(fresh), 500):
                client.create_topics(fresh[first : first + 500], 1)
            for name in fresh:
                client.send_batch(name, 0, _BATCH)
            places += [(name, 0) for name in fresh]
            point = {"n": count, "empty_mb": empty, **_measured(server, [client], places)}
            yield point


def partitions(data: Path) -> Iterator[dict[str, Any]]:
    """One broker, one connection, one topic; a fresh broker for each point."""
    for count in PARTITIONS:
        with MagnetarOs(data) as server, ThinClient.to(server.address) as client:
            empty = rss_mb([server.pid])
            client.create_topics(["topic"], count)
            for number in range(count):
                client.send_batch("topic", number, _BATCH)
            places = [("topic", number) for number in range(count)]
            point = {"n": count, "empty_mb": empty, **_measured(server, [client], places)}
        yield point


def connections(data: Path) -> Iterator[dict[str, Any]]:
    """One broker, ten topics; connections take turns."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with MagnetarOs(data) as server:
        clients = [ThinClient.to(server.address)]
        empty = rss_mb([server.pid])
        names = [f"topic-{number}" for number in range(10)]
        clients[0].create_topics(names, 1)
        for name in names:
            clients[0].send_batch(name, 0, _BATCH)
        for count in CONNECTIONS:
            clients += [ThinClient.to(server.address) for _ in range(count - len(clients))]
            for each in clients:
                each.send_batch(names[0], 0, _BATCH)
            point = {
                "n": count,
                "empty_mb": empty,
                **_measured(server, clients, [(each, 0) for each in names]),
            }
            yield point
        for each in clients:
            each.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _stock(
    servers: str, pids: Callable[[], list[int]], seconds: float = 8, rate: int = 2000
) -> dict[str, Any]:
    """Send at a fixed rate by a stock producer to 12 partitions, read by a stock consumer; both wait for all."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("scaled", 12)])["scaled"].result(60)

    def led() -> list[int]:
        found = admin.list_topics("scaled", timeout=10).topics["scaled"].partitions.values()
        return [each.leader for each in found]

    while not (leaders := led()) or min(leaders) < 0:
        time.sleep(0.1)
    time.sleep(6)  # brokers and workers that came late are given their part
    waits: list[float] = []
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True})
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "scaled", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("scaled", each, 0) for each in range(12)])

    def send(seconds: float) -> int:
        began, sent = time.perf_counter(), 0
        while (now := time.perf_counter() - began) < seconds:
            while sent < now * rate:
                at = time.perf_counter()
                producer.produce(
                    "scaled",
                    b"x" * 100,
                    partition=sent % 12,
                    on_delivery=lambda *_, at=at: waits.append(time.perf_counter() - at),
                )
                sent += 1
            producer.poll(0.002)
            consumer.consume(1000, 0)
        producer.flush(60)
        return sent

    send(2)
    waits.clear()
    before = cpu_s(pids())
    sent = send(seconds)
    used = cpu_s(pids()) - before
    consumer.close()
    waits.sort()
    return {
        "cpu_us": 1e6 * used / sent,
        "p50_ms": 1e3 * median(waits),
        "p99_ms": 1e3 * waits[int(0.99 * len(waits))],
        "rss_mb": rss_mb(pids()),
        "leaders": len(set(led())),
    }


def workers(data: Path) -> Iterator[dict[str, Any]]:
    """One data directory, served by 1 to 3 workers."""
    for count in PROCESSES:
        server = MagnetarOs(data)
        server.settings = (*server.settings, f"workers={count}")
        with server:
            point = {"n": count, **_stock(server.address, lambda server=server: family(server.pid))}
        yield point


def brokers(data: Path) -> Iterator[dict[str, Any]]:
    """1 to 3 brokers on the same three bookies; bookies and ZooKeeper are not counted."""
    from benchmarks.faults.house import House

    for count in PROCESSES:
        data.mkdir(parents=True, exist_ok=True)
        with House(data, brokers=count) as house:
            servers = ",".join(f"127.0.0.1:{each.kafka}" for each in house.brokers)
            pids = [each.pid for each in house.brokers]
            point = {"n": count, **_stock(servers, lambda pids=pids: pids)}
        yield point
        shutil.rmtree(data, ignore_errors=True)


def takeover(data: Path) -> Iterator[dict[str, Any]]:
    """Three brokers and many topics; one broker is killed, and all its topics are written to again."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    from benchmarks.faults.house import SESSION_MS, House

    made = 0
    data.mkdir(parents=True, exist_ok=True)
    with House(data) as house:
        servers = ",".join(f"127.0.0.1:{each.kafka}" for each in house.brokers)
        admin = AdminClient({"bootstrap.servers": servers, "topic.metadata.refresh.interval.ms": 1000})
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "retry.backoff.ms": 50}
        names: list[str] = []
        for count in TAKEOVER:
            fresh = [f"topic-{number}" for number in range(made, count)]
            made = count
            for first in range(0, len(fresh), 50):
                some = [NewTopic(name, 1) for name in fresh[first : first + 50]]
                for future in admin.create_topics(some, request_timeout=60).values():
                    future.result(60)
            names += fresh
            producer = Producer(settings)
            for name in names:
                producer.produce(name, b"before")
            if producer.flush(120):
                raise RuntimeError("topics cannot be written to")
            dead = house.brokers[0]
            metadata = admin.list_topics(timeout=30).topics
            lost = [name for name in names if metadata[name].partitions[0].leader == dead.number]
            memory = [rss_mb([each.pid]) for each in house.brokers]
            failed: list[object] = []
            dead.kill()
            began = time.perf_counter()
            for name in lost:
                producer.produce(
                    name, b"after", on_delivery=lambda error, _, failed=failed: failed.append(error)
                )
            producer.flush(120)
            point = {
                "n": count,
                "of_the_dead": len(lost),
                "session_s": SESSION_MS / 1000,
                "all_again_s": time.perf_counter() - began,
                "failed": sum(each is not None for each in failed),
                "rss_mb": sum(memory) / len(memory),
            }
            yield point
            dead.start()
            time.sleep(15)


PARTS: dict[str, Callable[[Path], Iterator[dict[str, Any]]]] = {
    each.__name__: each for each in (topics, partitions, connections, workers, brokers, takeover)
}


# -- the model -------------------------------------------------------------------------------------------------


def fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return ``a`` and ``b`` of the line ``a + b * x`` with the least squares."""
    count = len(points)
    mean_x, mean_y = (sum(each[axis] for each in points) / count for axis in (0, 1))
    over = sum((x - mean_x) * (y - mean_y) for x, y in points)
    slope = over / sum((x - mean_x) ** 2 for x, _ in points)
    return mean_y - slope * mean_x, slope


MODELS: tuple[tuple[str, str, Callable[[float], float], Callable[[dict[str, Any]], float]], ...] = (
    ("memory, MB", "a + b n", lambda n: n, lambda point: point["rss_mb"]),
    ("produce, processor us", "a + b log n", math.log10, lambda point: point["produce"]["cpu_us"]),
    ("fetch, processor us", "a + b log n", math.log10, lambda point: point["fetch"]["cpu_us"]),
)


def modelled(kept: dict[str, Any]) -> str:
    """Return the rows of the table of the model: what was held out, what it says, and beyond."""
    rows = []
    for part, held_out in HELD_OUT.items():
        points = kept.get(part, [])
        for name, formula, axis, value in MODELS:
            told = [(axis(each["n"]), value(each)) for each in points if each["n"] not in held_out]
            if len(told) < 2:
                continue
            a, b = fit(told)
            checks = []
            for each in points:
                if each["n"] in held_out:
                    says, is_ = a + b * axis(each["n"]), value(each)
                    checks.append(
                        f"{each['n']:,}: {says:.4g} for {is_:.4g} ({100 * (says / is_ - 1):+.0f} %)"
                    )
            beyond = "; ".join(f"{n:,}: {a + b * axis(n):,.4g}" for n in ASKED[part])
            rows.append(f"| {part} | {name} | {formula} | {b:.3g} | {'; '.join(checks)} | {beyond} |")
    return "\n".join(rows)


# -- the page --------------------------------------------------------------------------------------------------


def text(kept: dict[str, Any]) -> str:
    """Return the page for kept figures."""
    return TEMPLATE.read_text().format(
        day=kept["day"],
        commit=kept["commit"],
        calls=CALLS,
        one="\n".join(_one(part, each) for part in HELD_OUT for each in kept.get(part, [])),
        several="\n".join(
            _several(part, each) for part in ("workers", "brokers") for each in kept.get(part, [])
        ),
        model=modelled(kept),
        takeover="\n".join(map(_taken_over, kept.get("takeover", []))),
    )


def _one(part: str, point: dict[str, Any]) -> str:
    columns = []
    for what in ("produce", "fetch"):
        figures = point[what]
        columns += [f"{figures['cpu_us']:.0f}", f"{figures['p50_ms']:.2f} / {figures['p99_ms']:.2f}"]
    per = 1000 * (point["rss_mb"] - point["empty_mb"]) / point["n"]
    columns += [f"{point['rss_mb']:.0f}", f"{per:.3g}", f"{point['idle_cpu_percent']:.1f}"]
    return f"| {part} | {point['n']:,} | {' | '.join(columns)} |"


def _several(part: str, point: dict[str, Any]) -> str:
    waits = f"{point['p50_ms']:.1f} / {point['p99_ms']:.1f}"
    return f"| {part} | {point['n']} | {point['leaders']} | {point['cpu_us']:.0f} | {waits} | {point['rss_mb']:.0f} |"


def _taken_over(point: dict[str, Any]) -> str:
    beyond = point["all_again_s"] - point["session_s"]
    return (
        f"| {point['n']:,} | {point['of_the_dead']:,} | {point['all_again_s']:.1f} | {beyond:.1f} "
        f"| {point['failed']} | {point['rss_mb']:.0f} |"
    )


def draw(kept: dict[str, Any], file: Path) -> None:
    """Draw processor time and memory as topics, partitions and connections grow."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    picture, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    for part, color in zip(HELD_OUT, ("#2a9d8f", "#e9a03b", "#264653"), strict=True):
        points = kept.get(part, [])
        counts = [each["n"] for each in points]
        left.plot(
            counts,
            [each["produce"]["cpu_us"] for each in points],
            "o-",
            color=color,
            label=f"{part}, produce",
        )
        left.plot(
            counts, [each["fetch"]["cpu_us"] for each in points], "o:", color=color, label=f"{part}, fetch"
        )
        right.plot(counts, [each["rss_mb"] for each in points], "o-", color=color, label=part)
    for axes, label in ((left, "processor time of a call, us"), (right, "resident memory, MB")):
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_ylabel(label, fontsize=8)
        axes.tick_params(labelsize=8)
        axes.legend(fontsize=7, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    picture.tight_layout()
    picture.savefig(file, dpi=110, metadata={"Software": None})
    pyplot.close(picture)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.scaling", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--json", type=Path, default=RESULTS, help="where figures are kept, those of other parts too"
    )
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--page", action="store_true", help="write the page and the picture from what is kept"
    )
    given = parser.parse_args()
    if given.page:
        kept = json.loads(RESULTS.read_text())
        PAGE.write_text(text(kept))
        draw(kept, PAGE.parent / "images" / IMAGE)
        return
    kept = json.loads(given.json.read_text()) if given.json.exists() else {}
    for part in given.only:
        data = Path(tempfile.mkdtemp(prefix="scaling-"))
        try:
            found = []
            for point in PARTS[part](data / "data"):
                print(part, point, flush=True)
                found.append(point)
            kept[part] = found
        finally:
            shutil.rmtree(data, ignore_errors=True)
        commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
        kept |= {"day": date.today().isoformat(), "commit": commit.stdout.strip()}
        given.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
