"""Who may do what: a table for each interface, filled in by asking, and held against the one that was read through.

A line is one way to ask; a column somebody who asks (`house.ASKERS`), from who may least to who may most; `asking` says
what the letters mean. Whatever is loosened or tightened shows as a changed line. ``--rewrite`` renews the tables: then
read the difference. What must hold whatever the tables say is asserted with every cell: who is refused learns nothing
and changes nothing, and of a tenant's things no foreigner is shown any, nor changes one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from magnetar.kafka.handlers import ROUTES
from tests.security.matrix import kafka, pulsar, web
from tests.security.matrix.asking import Ask, Asked
from tests.security.matrix.house import ASKERS, Asker, House

HERE = Path(__file__).parent
FOREIGNERS = [asker.name for asker in ASKERS[: [each.name for each in ASKERS].index("producer")]]
DENIED = "consumer, denied the topic"
DENIED_ADMIN = "red's admin, denied the topic"
ABROAD = [asker for asker in ASKERS if " at " not in asker.name]
"""Of who says where he is at home, once each: where nobody is asked for a home."""
FEW = [
    asker
    for asker in ABROAD
    if asker.name not in ("expired", "stranger", "public's admin", "producer, consumer of blue's")
]
_SHARED = {
    "offset_fetch",
    "join_group",
    "delete_groups",
    "list_groups",
    "heartbeat",
    "leave_group",
    "sync_group",
}
"""Without tenants groups are everybody's who may consume anything, as docs/security.md says."""

_BESIDE_THE_TOPIC = ("CreateTopics",)
"""It makes another topic, by a name that the one that is denied only begins."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands are refused, and each refusal is a line in the log."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
@pytest.mark.parametrize("tenants", [True, False], ids=["tenants", "shared"])
async def test_kafkas_apis(tenants: bool, request: pytest.FixtureRequest) -> None:
    ways = [
        (f"{route.name}, {way}" if way else route.name, ask)
        for route in ROUTES
        for way, ask in kafka.asked(route)
    ]
    open_to_all = () if tenants else tuple(_NAMES[each] for each in _SHARED)
    await _hold(
        "kafka" if tenants else "kafka-shared",
        ways,
        ASKERS if tenants else ABROAD,
        tenants,
        request,
        open_to_all,
    )


async def test_pulsars_commands(request: pytest.FixtureRequest) -> None:
    await _hold("pulsar", list(pulsar.commands()), ABROAD, False, request)


@pytest.mark.parametrize("askers", [FEW, pytest.param(ABROAD, marks=pytest.mark.slow)], ids=["few", "all"])
async def test_the_admin_rest(askers: Sequence[Asker], request: pytest.FixtureRequest) -> None:
    ways = [(name, of_red) for name, of_red, _ in web.rest_paths()]
    await _hold("rest", ways, askers, False, request)


@pytest.mark.parametrize("askers", [FEW, pytest.param(ABROAD, marks=pytest.mark.slow)], ids=["few", "all"])
async def test_the_console(askers: Sequence[Asker], request: pytest.FixtureRequest) -> None:
    await _hold("console", list(web.console_paths()), askers, False, request)


@pytest.mark.parametrize("askers", [FEW, pytest.param(ABROAD, marks=pytest.mark.slow)], ids=["few", "all"])
async def test_the_consoles_actions(askers: Sequence[Asker], request: pytest.FixtureRequest) -> None:
    await _hold("console-actions", list(web.console_actions()), askers, False, request)


async def test_namesakes_in_the_admin_rest(request: pytest.FixtureRequest) -> None:
    """Whatever blue's people do to topics and subscriptions of blue's, red's of the same names are as they were."""
    ways = [(name, of_blue) for name, _, of_blue in web.rest_paths()]
    blues = [asker for asker in ABROAD if asker.name.startswith("blue")]
    await _hold("rest-namesakes", ways, blues, False, request)


@pytest.mark.slow
@pytest.mark.parametrize("tenants", [True, False], ids=["tenants", "shared"])
async def test_the_schema_registry(tenants: bool, request: pytest.FixtureRequest) -> None:
    askers = ASKERS if tenants else ABROAD
    await _hold(
        "registry" if tenants else "registry-shared", list(web.registry_paths()), askers, tenants, request
    )


_NAMES = {route.handler: route.name for route in ROUTES}


async def _hold(
    name: str,
    ways: Sequence[tuple[str, Ask]],
    askers: Sequence[Asker],
    tenants: bool,
    request: pytest.FixtureRequest,
    open_to_all: tuple[str, ...] = (),
) -> None:
    """Fill in a table, and hold it against the one of that name, column by column."""
    asked = Asked(_furnish, tenants=tenants)
    rows: dict[str, dict[str, str]] = {}
    try:
        for way, ask in ways:
            row = rows[way] = {asker.name: await asked.cell(ask, asker) for asker in askers}
            if not way.startswith(open_to_all or "\0"):
                touched = [each for each in FOREIGNERS if row.get(each, "-") in "scb"]
                assert not touched, f"{way}: shown or changed something of another tenant's: {touched}"
            _hold_denials(way, row)
    finally:
        await asked.close()
    print(f"\n{name}: {asked.cells} cells")
    file = HERE / f"{name}.txt"
    if request.config.getoption("--rewrite", default=False) and askers is not FEW:
        file.write_text(_as_text(rows, askers))
    kept = _from_text(file.read_text())
    assert list(kept) == list(rows), "ways to ask have come or gone: read them through and --rewrite"
    told = {
        f"{way} as {who}": (kept[way][who], cell)
        for way, row in rows.items()
        for who, cell in row.items()
        if kept[way][who] != cell
    }
    assert not told, "(in the table, now); read it through and --rewrite"


def _hold_denials(way: str, row: dict[str, str]) -> None:
    """What an ACL denies is denied by every interface, whatever a grant or being an admin would allow.

    Groups are others: that somebody may not have a topic does not keep him out of a group that reads it.
    """
    if not way.startswith(tuple(_NAMES[each] for each in _SHARED)):
        assert row.get(DENIED, "-") not in "scb", f"{way}: {DENIED}"
    names_topic = "/ruby" in way or way.endswith((", short", ", full", ", id"))
    if names_topic and not way.startswith(_BESIDE_THE_TOPIC):
        assert row.get(DENIED_ADMIN, "-") not in "scb", f"{way}: {DENIED_ADMIN}"


async def _furnish(house: House) -> None:
    await kafka.furnish(house)
    await web.furnish(house)
    txn = await house.transaction_of("root")
    assert str(txn.least) == web.VALUES["least"], txn  # the one that paths name


def _as_text(rows: dict[str, dict[str, str]], askers: Sequence[Asker]) -> str:
    """Return a table as it is kept: a line for each asker, slanting to its column, then one for each way to ask."""
    head = [f"# {'|' * number}{asker.name}" for number, asker in enumerate(askers)]
    lines = [f"  {''.join(row[asker.name] for asker in askers)}  {way}" for way, row in rows.items()]
    return "\n".join([*head, *lines, ""])


def _from_text(text: str) -> dict[str, dict[str, str]]:
    lines = text.splitlines()
    names = [line[2:].lstrip("|") for line in lines if line.startswith("# ")]
    rows = {}
    for line in lines[len(names) :]:
        cells, _, way = line[2:].partition("  ")
        rows[way] = dict(zip(names, cells, strict=True))
    return rows
