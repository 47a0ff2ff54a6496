"""Every command against a running broker."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.operator import Operator
from tests.process import BrokerProcess


@pytest.fixture
def operator(broker: BrokerProcess) -> Operator:
    return Operator(broker.address)


@pytest.fixture
def filled(operator: Operator, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own: two partitions, 100 records keyed ``k0`` to ``k99``, all in partition 1."""
    topic = f"cli-{request.node.name}".replace("[", "-").replace("]", "")
    operator.ok("topic", "create", topic, "--partitions", "2")
    lines = "".join(f"k{number}\tv{number}\n" for number in range(100))
    operator.ok("produce", topic, "-K", r"\t", "-p", "1", "-H", "from=test", stdin=lines)
    return topic


class TestTopics:
    @pytest.mark.slow
    def test_from_create_to_delete(self, operator: Operator) -> None:
        made = operator.run(
            "topic", "create", "cli-life", "-p", "3", "-c", "retention.ms=5000", "--json"
        ).value
        assert [each["partition"] for each in made["partitions"]] == [0, 1, 2]
        named = {config["name"]: config for config in made["configs"]}
        assert (named["retention.ms"]["value"], named["retention.ms"]["source"]) == ("5000", "topic")
        assert "cli-life" in [each["name"] for each in operator.run("topic", "list", "--json").value]
        altered = operator.run("topic", "alter", "cli-life", "--unset", "retention.ms", "--json").value
        sources = {config["name"]: config["source"] for config in altered["configs"]}
        assert sources["retention.ms"] == "default"
        grown = operator.run("topic", "add-partitions", "cli-life", "5", "--json").value
        assert len(grown["partitions"]) == 5
        assert operator.run("topic", "delete", "cli-life", "--json").value == {"deleted": ["cli-life"]}
        gone = operator.run("topic", "describe", "cli-life")
        assert gone.status == 1
        assert "does not exist" in gone.err
        assert "topic list" in gone.err

    def test_a_dry_run_makes_nothing(self, operator: Operator) -> None:
        operator.ok("topic", "create", "cli-dry", "--dry-run")
        assert operator.run("topic", "describe", "cli-dry").status == 1

    @pytest.mark.slow
    def test_describe_and_trim(self, operator: Operator, filled: str) -> None:
        assert operator.run("topic", "trim", filled, "--before", "-10", "--json").value["first"] == {
            "0": 0,
            "1": 90,
        }
        told = operator.run("topic", "describe", filled, "--json").value
        rows = [(row["first"], row["next"], row["records"]) for row in told["partitions"]]
        assert rows == [(0, 0, 0), (90, 100, 10)]
        assert told["partitions"][1]["size"] > 0
        assert told["flush"] == "always"
        text = operator.ok("topic", "describe", filled)
        assert "flush" in text
        assert "retention.ms" in text

    def test_what_exists_already(self, operator: Operator, filled: str) -> None:
        again = operator.run("topic", "create", filled)
        assert again.status == 1
        assert "exists already" in again.err


class TestRecords:
    @pytest.mark.slow
    def test_what_goes_in_comes_out(self, operator: Operator, filled: str) -> None:
        lines = operator.run("consume", filled, "-e", "--json").lines
        assert [(row["key"], row["value"]) for row in lines] == [(f"k{n}", f"v{n}") for n in range(100)]
        assert lines[0]["headers"] == [{"key": "from", "value": "test"}]
        assert {(row["topic"], row["partition"]) for row in lines} == {(filled, 1)}

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
    def test_codecs(self, operator: Operator, codec: str) -> None:
        operator.ok("produce", f"cli-{codec}", "-p", "0", "-z", codec, stdin="a" * 1000 + "\n")
        told = operator.run("explain", f"cli-{codec}-0@0", "--json").value
        assert (told["batch"]["codec"], told["record"]["value"]["size"]) == (codec, 1000)

    @pytest.mark.slow
    def test_json_lines_round_trip(self, operator: Operator) -> None:
        topic = "cli-json"
        rows = [
            {"key": "ä", "value": "text", "headers": {"h": "1"}, "timestamp": 1_700_000_000_000},
            {"key": None, "value": None},
            {"key": {"base64": "/wA="}, "value": {"an": ["object", 1]}},
            {"value": "", "headers": [{"key": "x", "value": "1"}, {"key": "x", "value": None}]},
        ]
        operator.ok("topic", "create", topic, "-p", "1")
        text = "".join(json.dumps(row) + "\n" for row in rows)
        sent = operator.run("produce", topic, "-F", "json", "--json", stdin=text).value
        assert (sent["records"], sent["next"]) == (4, {"0": 4})
        seen = operator.run("consume", topic, "-e", "-J").lines
        assert [row["key"] for row in seen] == ["ä", None, {"base64": "/wA="}, None]
        assert [row["value"] for row in seen] == ["text", None, '{"an":["object",1]}', ""]
        assert seen[0]["timestamp"] == 1_700_000_000_000
        assert seen[3]["headers"] == [{"key": "x", "value": "1"}, {"key": "x", "value": None}]
        again = "".join(json.dumps(row) + "\n" for row in seen)
        operator.ok("topic", "create", f"{topic}-2", "-p", "1")
        operator.ok("produce", f"{topic}-2", "-F", "json", stdin=again)
        twice = operator.run("consume", f"{topic}-2", "-e", "-J").lines
        assert [row | {"topic": topic} for row in twice] == seen

    @pytest.mark.slow
    def test_format_offset_count_and_filters(self, operator: Operator, filled: str) -> None:
        assert operator.ok("consume", filled, "-o", "-2", "-e", "-f", r"%t/%p/%o %k=%s %h\n") == (
            f"{filled}/1/98 k98=v98 from=test\n{filled}/1/99 k99=v99 from=test\n"
        )
        assert operator.ok("consume", filled, "-p", "1", "-o", "50", "-c", "1") == "v50\n"
        assert operator.ok("consume", filled, "-e", "--key", "k7") == "v7\n"
        assert operator.ok("consume", filled, "-e", "--grep", "^v1[23]$") == "v12\nv13\n"
        assert operator.ok("consume", filled, "-e", "-o", "end") == ""
        assert len(operator.ok("consume", filled, "-e", "-o", "s@0").splitlines()) == 100
        assert operator.ok("consume", filled, "-e", "-o", "s@2100-01-01") == ""

    def test_a_file_with_nulls_and_no_final_newline(self, operator: Operator, tmp_path: Path) -> None:
        file = tmp_path / "lines"
        file.write_text("a:1\nb:NULL\nc:3")
        operator.ok("topic", "create", "cli-file", "-p", "1")
        operator.ok("produce", "cli-file", file, "-K", ":", "-Z", "NULL", "--progress")
        assert (
            operator.ok("consume", "cli-file", "-e", "-Z", "~", "-f", "%k=%s(%S) ")
            == "a=1(1) b=~(-1) c=3(1) "
        )

    def test_a_bad_line_is_named(self, operator: Operator, filled: str) -> None:
        ran = operator.run("produce", filled, "-F", "json", stdin='{"value": "x"}\nnonsense\n')
        assert ran.status == 2
        assert "line 2" in ran.err

    def test_records_that_the_broker_refuses(self, operator: Operator) -> None:
        operator.ok("topic", "create", "cli-small", "-c", "max.message.bytes=1000")
        ran = operator.run("produce", "cli-small", stdin="x" * 5000 + "\n")
        assert ran.status == 1
        assert "MESSAGE_TOO_LARGE" in ran.err

    @pytest.mark.slow
    def test_a_reader_that_has_seen_enough_is_no_error(self, operator: Operator) -> None:
        operator.ok("topic", "create", "cli-many", "-p", "1")
        operator.ok("produce", "cli-many", stdin="x" * 100 + "\n" + "y\n" * 200_000)
        assert operator.through_head("consume", "cli-many", "-e") == (0, "x" * 100 + "\n", "")


class TestGroups:
    @pytest.mark.slow
    def test_from_the_first_commit_to_the_last(self, operator: Operator, filled: str) -> None:
        group = f"g-{filled}"
        assert len(operator.ok("consume", filled, "-g", group, "-e").splitlines()) == 100
        assert operator.ok("consume", filled, "-g", group, "-e") == ""
        told = operator.run("group", "describe", group, "--json").value
        assert (told["state"], told["total_lag"]) == ("Empty", 0)
        moved = operator.run("group", "seek", group, "--to", "-30", "--json").value
        assert [row["after"] for row in moved["partitions"] if row["partition"] == 1] == [70]
        assert operator.run("group", "describe", group, "--json").value["total_lag"] == 30
        operator.ok("group", "seek", group, "--shift", "-10")
        assert operator.run("group", "describe", group, "--json").value["total_lag"] == 40
        operator.ok("group", "seek", group, "--to", "latest", "--dry-run")
        assert operator.run("group", "describe", group, "--json").value["total_lag"] == 40
        operator.ok("group", "seek", group, "--to", "s@0", "-t", filled, "-p", "1")
        assert len(operator.ok("consume", filled, "-g", group, "-e").splitlines()) == 100
        assert group in operator.ok("group", "list")
        operator.ok("group", "delete-offsets", group, "-t", filled)
        operator.ok("group", "delete", group)
        gone = operator.run("group", "describe", group)
        assert gone.status == 1
        assert "group list" in gone.err

    @pytest.mark.slow
    @pytest.mark.parametrize("killed", [True, False])
    def test_who_follows_in_a_group_commits_meanwhile_and_when_he_stops(
        self, operator: Operator, filled: str, killed: bool
    ) -> None:
        group = f"follows-{filled}-{killed}"
        every_ms = 100 if killed else 600_000
        reader = operator.start(
            "consume",
            filled,
            "-G",
            group,
            "-X",
            f"auto.commit.interval.ms={every_ms}",
            stdout=subprocess.PIPE,
        )

        def lag() -> object:
            return operator.run("group", "describe", group, "--json").value["total_lag"]

        try:
            assert reader.stdout is not None
            assert len([reader.stdout.readline() for _ in range(100)]) == 100
            if killed:
                operator.until(lambda: lag() == 0)
            else:
                reader.send_signal(signal.SIGINT)
                reader.wait()
                assert lag() == 0
        finally:
            reader.kill()
            reader.communicate()

    @pytest.mark.slow
    def test_a_topic_that_is_gone_does_not_hide_the_group(self, operator: Operator, filled: str) -> None:
        group = f"g-{filled}"
        operator.ok("topic", "create", "cli-short-lived", "-p", "1")
        reader = operator.start("consume", "cli-short-lived", "-g", group)
        try:
            operator.until(lambda: "Stable" in operator.run("group", "describe", group).out)
            reader.send_signal(signal.SIGSTOP)  # it would see that the topic is gone, and read nothing
            operator.ok("topic", "delete", "cli-short-lived")
            told = operator.run("group", "describe", group, "--json").value
            assert (told["partitions"][0]["end"], told["total_lag"]) == (None, 0)
            assert operator.run("why", "group", group, "--json").value["reason"] == "no-topic"
        finally:
            reader.kill()
            reader.wait()

    def test_seek_needs_one_place(self, operator: Operator) -> None:
        assert operator.run("group", "seek", "g").status == 2
        assert operator.run("group", "seek", "g", "--to", "nowhere").status == 2


class TestConfigs:
    @pytest.mark.slow
    def test_broker_settings_change_while_it_runs(self, operator: Operator) -> None:
        operator.ok("config", "alter", "max.connections.per.ip=1000", "--all-brokers")
        shown = operator.run("config", "show", "--all-brokers", "--json").value
        assert {row["name"]: row["value"] for row in shown["configs"]} == {"max.connections.per.ip": "1000"}
        operator.ok("config", "alter", "--unset", "max.connections.per.ip", "--all-brokers")
        assert operator.run("config", "show", "--all-brokers", "--json").value["configs"] == []

    def test_a_wrong_value_is_refused_with_the_reason(self, operator: Operator, filled: str) -> None:
        ran = operator.run("config", "alter", "--topic", filled, "retention.ms=soon")
        assert ran.status == 1
        assert "retention.ms" in ran.err
        assert operator.run("config", "alter", "--topic", filled, "retention.ms").status == 2

    def test_settings_need_no_broker(self) -> None:
        rows = Operator("127.0.0.1:1").run("config", "settings", "flush", "--json").value
        assert "flush" in [row["name"] for row in rows]
        assert all(row["documentation"] for row in rows)


class TestInsight:
    def test_explain_finds_the_directory_by_itself(self, operator: Operator, filled: str) -> None:
        told = operator.run("explain", f"{filled}-1@42", "--json").value
        assert (told["offset"], told["record"]["key"]["text"]) == (42, "k42")
        text = operator.ok("explain", f"{filled}-1@42")
        assert "k42" in text
        assert "producer" in text

    def test_explain_what_is_not_there(self, operator: Operator, filled: str) -> None:
        ran = operator.run("explain", f"{filled}-1@100")
        assert ran.status == 1
        assert "it holds 0 to 99" in ran.err
        assert operator.run("explain", filled).status == 2

    @pytest.mark.slow
    def test_why(self, operator: Operator, filled: str) -> None:
        assert operator.run("why", f"{filled}-0", "--json").value["reason"] == "never-written"
        not_there = operator.run("why", "group", "nobody-at-all", "--json")
        assert (not_there.status, json.loads(not_there.out)["reason"]) == (1, "no-group")
        assert "->" in operator.ok("why", f"{filled}-1")
        assert operator.run("why", "group").status == 2

    def test_ledgers(self, operator: Operator, filled: str) -> None:
        told = operator.run("ledger", "list", f"{filled}-1", "--json").value
        assert told["next_offset"] == 100
        assert told["ledgers"][0]["first_offset"] == 0

    @pytest.mark.slow
    def test_a_directory_without_its_broker(
        self, start_broker: Callable[..., BrokerProcess], tmp_path: Path
    ) -> None:
        broker = start_broker()
        operator = Operator(broker.address)
        operator.ok("produce", "t", "-p", "0", stdin="hello\n")
        live = operator.run("explain", "t-0@0", "--json").value
        broker.end()
        assert operator.run("explain", "t-0@0", "--data", broker.data, "--json").value == live
        assert (
            operator.run("ledger", "list", "t-0", "--data", broker.data, "--json").value["next_offset"] == 1
        )
        why = operator.run("why", "t-0", "--data", broker.data)
        assert why.status == 1
        assert "no broker serves" in why.err


class TestLedgers:
    @pytest.mark.slow
    def test_verify_dump_and_repair(self, start_broker: Callable[..., BrokerProcess]) -> None:
        broker = start_broker()
        operator, data = Operator(broker.address), broker.data
        for number in range(5):
            operator.ok("produce", "t", "-p", "0", stdin=f"value-{number}\n")
        assert operator.run("ledger", "verify", "--data", data, "--json").value["live"] is True
        refused = operator.run("ledger", "repair", "--data", data)
        assert (refused.status, "is in use by a broker" in refused.err) == (1, True)
        file = Path(operator.run("explain", "t-0@2", "--json").value["file"]["path"])
        at = operator.run("explain", "t-0@2", "--json").value["file"]["position"]
        broker.end()
        whole = operator.run("ledger", "verify", "--data", data)
        assert (whole.status, whole.out.splitlines()[-1]) == (0, "all of it is what was written")
        content = bytearray(file.read_bytes())
        content[at + 40] ^= 4
        file.write_bytes(content)
        damaged = operator.run("ledger", "verify", "--data", data)
        assert damaged.status == 1
        assert str(file) in damaged.out
        assert "--drop-damaged" in damaged.out
        rows = operator.run("ledger", "dump", "t-0", "--data", data, "--json").value["ledgers"][0]["entries"]
        assert [row["problem"] for row in rows] == ["", "", "damaged", "", ""]
        assert "damaged" in operator.ok("ledger", "dump", "t-0", "--data", data)
        kept = operator.run("ledger", "repair", "--data", data)
        assert kept.status == 1
        mended = operator.run("ledger", "repair", "--data", data, "--drop-damaged", "--yes")
        assert mended.status == 0, mended.out + mended.err
        assert "offsets 2 to 2" in mended.out
        assert operator.run("ledger", "verify", "--data", data).status == 0

    def test_dump_needs_to_know_what(self, operator: Operator, broker: BrokerProcess) -> None:
        assert operator.run("ledger", "dump", "--data", broker.data).status == 2
        assert operator.run("ledger", "dump", "nowhere-0", "--data", broker.data).status == 1


class TestEnds:
    def test_no_broker(self) -> None:
        for command in (["topic", "list"], ["group", "list"], ["consume", "t"], ["why", "t-0"]):
            ran = Operator("127.0.0.1:1").run(*command)
            assert ran.status == 1
            assert "no broker answers at 127.0.0.1:1" in ran.err
            assert "magnetar standalone" in ran.err
            assert "Traceback" not in ran.err

    def test_errors_are_json_where_json_is_asked_for(self) -> None:
        ran = Operator("127.0.0.1:1").run("topic", "list", "--json")
        assert json.loads(ran.err)["error"]["kind"] == "Unreachable"

    def test_usage(self, operator: Operator) -> None:
        for command in (["topic", "nonsense"], ["explain"], ["topic", "list", "--nonsense"], ["nonsense"]):
            assert operator.run(*command).status == 2
        assert operator.run("topic", "list", "-b", "nowhere").status == 2

    def test_something_else_listens_there(self, broker: BrokerProcess) -> None:
        import socketserver
        import threading

        class Web(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(100)
                self.request.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        with socketserver.TCPServer(("127.0.0.1", 0), Web) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            ran = Operator(f"127.0.0.1:{server.server_address[1]}").run("topic", "list")
            server.shutdown()
        assert ran.status == 1
        assert "Is it a Kafka listener" in ran.err


class TestCompletion:
    @staticmethod
    def complete(operator: Operator, line: str) -> list[str]:
        ran = operator.run(
            _MAGNETAR_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(line.split(" ")) - 1)
        )
        return ran.out.split()

    @pytest.mark.slow
    def test_topics_and_groups_come_from_the_broker(self, operator: Operator, filled: str) -> None:
        operator.ok("consume", filled, "-g", f"g-{filled}", "-e", "-c", "1")
        assert filled in self.complete(operator, "magnetar topic describe cli-")
        assert f"g-{filled}" in self.complete(operator, "magnetar group describe g-")
        assert f"{filled}-1" in self.complete(operator, "magnetar why cli-")
        assert f"{filled}-1" in self.complete(operator, "magnetar explain cli-")
        assert f"g-{filled}" in self.complete(operator, "magnetar why group g-")

    def test_no_broker_no_names(self) -> None:
        assert self.complete(Operator("127.0.0.1:1"), "magnetar topic describe ") == []

    def test_options_of_standalone(self, operator: Operator) -> None:
        assert {"--data", "--kafka", "--config", "--set"} <= set(
            self.complete(operator, "magnetar standalone --")
        )
