"""What strangers call their things never reaches a terminal, a log or a page of figures as they wrote it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from magnetar.admin.errors import Invalid
from magnetar.base.logs import JsonLines, KeyValues
from magnetar.base.printable import printable, printable_json, printable_lines
from magnetar.cli import app, output
from magnetar.figures.figures import labelled
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from tests.cli.operator import MAGNETAR, Operator
from tests.hostile.client import Wire, produce
from tests.process import BrokerProcess

EVIL = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe\x9b2J\x7f\u2028\u2066"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\u202egnp.exe\x9b2J\x7f\u2028\u2066"
SEEN = [
    *map(chr, range(32)),
    *map(chr, range(127, 160)),
    *"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
]
SEEN += [*"\u200e\u200f\u061c\u2028\u2029"]


def harmless(text: str, *, but: str = "") -> bool:
    return not set(text) & (set(SEEN) - set(but))


@given(st.text())
@example(EVIL)
def test_nothing_that_moves_a_terminal_is_left(text: str) -> None:
    assert harmless(printable(text))
    assert harmless(printable_lines(text), but="\n\t")
    assert printable_lines(text).count("\n") == text.count("\n")
    harmless_already = "".join(each for each in text if each not in SEEN and each.isprintable())
    assert printable(harmless_already) == harmless_already


@given(st.recursive(st.text(), lambda inner: st.dictionaries(st.text(), inner) | st.lists(inner)))
def test_json_says_the_same(value: object) -> None:
    for indent in (None, 2):
        text = json.dumps(value, ensure_ascii=False, indent=indent)
        assert json.loads(printable_json(text)) == value
        assert harmless(printable_json(text), but="\n")


@pytest.mark.parametrize("as_json", [True, False])
def test_a_commands_value(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    value = {"name": EVIL}
    output.give(
        value,
        lambda value: [
            value["name"],
            output.table(["name", EVIL], [[value["name"]]], title=EVIL),
            output.pairs([(EVIL, value["name"])]),
        ],
        as_json=as_json,
    )
    said = capsys.readouterr().out
    assert harmless(said, but="\n")
    assert (json.loads(said) == value) if as_json else said.count(SHOWN) == 6


@pytest.mark.parametrize("as_json", [True, False])
def test_a_commands_error(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    app._complain(Invalid(f"no group {EVIL}", ""), f"ask for {EVIL}", as_json=as_json)
    said = capsys.readouterr().err
    assert harmless(said, but="\n")
    if as_json:
        assert json.loads(said)["error"]["message"] == f"no group {EVIL}"
    else:
        assert said.count(SHOWN) == 2


@pytest.mark.parametrize("form", [KeyValues(), JsonLines()])
def test_a_log_line(form: logging.Formatter) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        record = logging.LogRecord("a", logging.INFO, "", 0, "group %s", (EVIL,), sys.exc_info())
    record.fields = {"group": EVIL}
    assert harmless(form.format(record), but="\n")
    if isinstance(form, JsonLines):
        assert json.loads(form.format(record))["group"] == EVIL


def test_a_label_of_a_figure() -> None:
    assert harmless(labelled(group=EVIL))


@pytest.mark.slow
def test_groups_and_transactional_ids_of_strangers(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, Wire(broker.host_and_port) as wire:
        wire.ask(InitProducerIdRequest(transactional_id=EVIL, transaction_timeout_ms=60_000), 4)
        join = JoinGroupRequest(
            group_id=EVIL,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range")],
        )
        wire.ask(join, 3)
        operator = Operator(broker.address)
        for arguments in (["txn", "list"], ["txn", "describe", EVIL], ["group", "list"]):
            for more in ([], ["--json"]):
                said = operator.ok(*arguments, *more)
                assert harmless(said, but="\n"), arguments
                assert more or SHOWN[:20] in said


@pytest.mark.slow
def test_records_on_a_terminal(tmp_path: Path) -> None:
    """And in a pipe they are what they are, but for JSON, which can say the same without."""
    value = f"one {EVIL}\ttwo".encode() + b"\xff"
    with BrokerProcess(tmp_path / "data") as broker:
        Operator(broker.address).ok("topic", "create", "t")
        with Wire(broker.host_and_port) as wire:
            produce(wire, "t", encode_batch([PlainRecord(None, value, [], 0, 0)]))
        asked = ["consume", "t", "--exit", "--bootstrap-server", broker.address]
        assert subprocess.run([MAGNETAR, *asked], stdout=subprocess.PIPE, check=True).stdout == value + b"\n"
        lines = subprocess.run([MAGNETAR, *asked, "--json"], stdout=subprocess.PIPE, check=True).stdout
        assert harmless(lines.decode(), but="\n")
        ours, theirs = os.openpty()
        attributes = termios.tcgetattr(theirs)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)
        subprocess.run([MAGNETAR, *asked], stdout=theirs, check=True)
        os.close(theirs)
        said = os.read(ours, 1 << 16).decode()
        os.close(ours)
    assert harmless(said, but="\n\t")
    assert said == f"one {SHOWN}\ttwo\\xff\n"
