"""rsyslog's omkafka, as the distribution has it (packages rsyslog, rsyslog-kafka): lines of a file become records."""

from __future__ import annotations

from pathlib import Path

from ages import stored
from waiting import same

from apps import topics
from apps.faults import killed
from apps.flow import Flow
from apps.java import Application
from apps.topics import until
from benchmarks.peers.server import Server

TOPIC = "lines"
LINES = 10_000
CONFIG = """
global(workDirectory="{folder}")
module(load="imfile" mode="polling" pollingInterval="1")
module(load="omkafka")
template(name="line" type="string" string="%msg%")
input(type="imfile" file="{file}" tag="lines" ruleset="out" persistStateInterval="100")
ruleset(name="out" queue.type="LinkedList") {{
  action(type="omkafka" broker="{address}" topic="lines" template="line" resubmitOnFailure="on" keepFailedMessages="on"
         failedMsgFile="{folder}/failed" action.resumeRetryCount="-1" partitions.auto="on"
         confParam=["compression.codec=gzip", "enable.idempotence=true", "linger.ms=50"])
}}
"""


def rsyslog(broker: Server, folder: Path) -> None:
    """rsyslog's omkafka: the broker is killed twice; each line is a record, in gzip batches of one producer id"""
    topics.make(broker.address, TOPIC, 3)
    file, config = folder / "app.log", folder / "rsyslog.conf"
    config.write_text(CONFIG.format(folder=folder, file=file, address=broker.address))

    def write(begin: int, end: int) -> None:
        with file.open("a") as lines:
            lines.writelines(
                f"{number:05d} {'a line of an application ' * 4}\n" for number in range(begin, end)
            )

    rsyslogd = ("-n", "-f", config, "-i", folder / "pid")
    with (
        Flow(write, LINES) as flow,
        Application(folder / "rsyslog.log", *rsyslogd, script=Path("/usr/sbin/rsyslogd")) as running,
    ):
        lost = 0
        for part in (10, 2):
            until("lines to arrive", lambda enough=LINES // part: len(_numbers(broker)) > enough)
            lost += killed(broker, TOPIC)
        until("all lines to be written", lambda: flow.written == LINES)
        until("all of them to arrive", lambda: len(set(_numbers(broker))) >= LINES - lost)
        running.check()
    same(sorted(set(_numbers(broker))), list(range(LINES)), "lines missing, or none of ours")
    batches = [each for index in range(3) for each in stored.batches(broker.address, TOPIC, index)]
    same({each.codec for each in batches}, {"gzip"}, "codecs that are stored")
    same(all(each.producer_id >= 0 for each in batches), True, "batches have a producer id")


def _numbers(broker: Server) -> list[int]:
    return [int(each.value().split()[0]) for each in topics.read(broker.address, TOPIC)]
