"""The picture: throughput, errors, and who had which partition, one above the other, while things broke."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch

INK, PALE, RED = "#1b1f3b", "#6b7089", "#c8323c"
FLOWS = {"Kafka's producer": "#3b6fd4", "Pulsar's consumer": "#e08a1e", "Spark's table": "#2f9e6b"}
BROKERS = ["#3b6fd4", "#e08a1e", "#2f9e6b"]


class Sample(NamedTuple):
    """What was seen at one moment."""

    second: float
    counts: Mapping[str, int]
    """Records so far, by flow."""
    errors: Mapping[str, int]
    leaders: Sequence[int]
    """By partition; -1 where nobody has it, or nobody could say."""


class Event(NamedTuple):
    """Something that was done to the cluster."""

    second: float
    what: str


def draw(samples: Sequence[Sample], events: Sequence[Event], path: Path) -> None:
    """Draw all samples as a PNG."""
    seconds = np.array([each.second for each in samples])
    figure, (flows, errors, owners) = plt.subplots(
        3, 1, figsize=(13, 9), sharex=True, layout="constrained", height_ratios=[3, 1.4, 2]
    )
    figure.set_facecolor("white")
    for name, colour in FLOWS.items():
        counts = np.array([each.counts[name] for each in samples])
        if name == "Spark's table":  # it comes by commits: a rate would be spikes
            total = flows.twinx()
            total.step(seconds, counts / 1000, where="post", color=colour, linewidth=1.6)
            total.set_ylabel("thousands in the table", color=colour)
            total.tick_params(colors=colour, length=0)
            total.spines[:].set_visible(False)
            flows.plot([], [], color=colour, label=f"{name}, so far (right)")
        else:
            flows.plot(
                seconds[1:], np.diff(counts) / np.diff(seconds), color=colour, linewidth=1.6, label=name
            )
    flows.set_ylabel("records a second", color=INK)
    flows.set_ylim(bottom=0)
    flows.legend(loc="upper left", frameon=False, fontsize=9)
    bottom = np.zeros(len(seconds) - 1)
    for name, colour in FLOWS.items():
        new = np.diff([each.errors[name] for each in samples]).astype(float)
        errors.bar(seconds[1:], new, np.diff(seconds), bottom=bottom, color=colour)
        bottom += new
    errors.set_ylabel("tried again", color=INK)
    errors.set_ylim(0, max(4.0, float(bottom.max(initial=0)) * 1.5))
    _owners(owners, seconds, samples)
    for panel in (flows, errors, owners):
        panel.tick_params(colors=PALE, length=0)
        panel.spines[:].set_visible(False)
        for event in events:
            panel.axvline(event.second, color=RED, linewidth=1, linestyle=(0, (4, 3)))
    for event in events:
        errors.annotate(
            f" {event.what}",
            (event.second, 1),
            xycoords=("data", "axes fraction"),
            color=RED,
            fontsize=9,
            va="top",
        )
    owners.set_xlabel("seconds", color=PALE)
    total_sent = samples[-1].counts["Kafka's producer"]
    figure.suptitle(
        f"{total_sent:,} flights through a cluster that loses a broker and a bookie",
        color=INK, fontsize=15, weight="bold",
    )  # fmt: skip
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _owners(panel: plt.Axes, seconds: np.ndarray, samples: Sequence[Sample]) -> None:
    """Draw one line per partition in the colour of the broker that has it; white where nobody does."""
    grid = np.array([each.leaders for each in samples]).T
    edges = np.append(seconds, seconds[-1] + 0.5)
    colours = ListedColormap(["white", "white", *BROKERS])
    norm = BoundaryNorm([-1.5, -0.5, 0.5, 1.5, 2.5, 3.5], colours.N)
    panel.pcolormesh(edges, np.arange(len(grid) + 1), grid, cmap=colours, norm=norm, alpha=0.85)
    panel.set_yticks(np.arange(len(grid)) + 0.5, [str(each) for each in range(len(grid))])
    panel.set_ylabel("owner of partition", color=INK)
    panel.hlines(np.arange(1, len(grid)), edges[0], edges[-1], color="white", linewidth=2)
    patches = [Patch(color=colour, label=f"broker {number}") for number, colour in enumerate(BROKERS, 1)]
    panel.legend(
        handles=patches, loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, frameon=False, fontsize=9
    )
