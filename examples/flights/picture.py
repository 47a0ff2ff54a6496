"""The picture: when not to fly from New York."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

AIRPORTS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
HOURS = range(5, 24)
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
INK, PALE = "#1b1f3b", "#6b7089"


def draw(cells: Iterable[Any], path: Path) -> None:
    """Draw the mean delay by month and hour, one panel per airport. ``cells``: (origin, month, hour, minutes)."""
    minutes = {name: np.full((12, len(HOURS)), np.nan) for name in AIRPORTS}
    for origin, month, hour, late in cells:
        if hour in HOURS:
            minutes[origin][month - 1, hour - HOURS.start] = late
    figure, panels = plt.subplots(1, 3, figsize=(14, 5.4), sharey=True, layout="constrained")
    figure.set_facecolor("white")
    for panel, (code, name) in zip(panels, AIRPORTS.items(), strict=True):
        image = panel.imshow(minutes[code], cmap="magma_r", vmin=0, vmax=60, aspect="auto")
        panel.set_title(f"{name} ({code})", color=INK, loc="left", fontsize=12, weight="bold")
        panel.set_xticks(range(0, len(HOURS), 3), [f"{hour}:00" for hour in HOURS[::3]])
        panel.set_yticks(range(12), MONTHS)
        panel.set_xlabel("scheduled departure", color=PALE)
        panel.tick_params(colors=PALE, length=0)
        panel.set_xticks(np.arange(-0.5, len(HOURS)), minor=True)
        panel.set_yticks(np.arange(-0.5, 12), minor=True)
        panel.grid(which="minor", color="white", linewidth=1)
        panel.tick_params(which="minor", length=0)
        for spine in panel.spines.values():
            spine.set_visible(False)
    bar = figure.colorbar(image, ax=panels, shrink=0.85, pad=0.01, extend="max")
    bar.set_label("mean delay at departure, minutes", color=PALE)
    bar.ax.tick_params(colors=PALE, length=0)
    bar.outline.set_visible(False)
    figure.suptitle(
        "When not to fly from New York: mean delays of 336,776 flights in 2013",
        color=INK,
        fontsize=15,
        weight="bold",
    )
    figure.savefig(path, dpi=140)
    plt.close(figure)
