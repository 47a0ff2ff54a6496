"""Draw docs/images/past.png from docs/past.json: what each compared commit cost, as a ratio to the older one.

``python -m benchmarks.past``. A new comparison by `benchmarks.before_after` is the last item of docs/past.json.
"""

from __future__ import annotations

import json
from typing import Any

from benchmarks.pictures import IMAGES

FILE = IMAGES.parent / "past.json"
BAR = 1.03
"""What a change may cost at most."""


def comparisons() -> list[dict[str, Any]]:
    """Return all comparisons, the oldest first: two commits, a date, a note, and the figures of each measure."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text())
    return found


def draw() -> None:
    """Draw one line for each measure; above the dashed line a commit cost more than it may."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = comparisons()
    names = [f"{each['new'][:7]}\nto {each['old']}\n{each['date'][5:]}" for each in found]
    picture, axes = pyplot.subplots(figsize=(9, 4))
    for measure in found[-1]["measures"]:
        axes.plot(names, [each["measures"][measure]["ratio"] for each in found], marker="o", label=measure)
    axes.axhline(BAR, linestyle="--", color="#264653", linewidth=1)
    axes.set_ylabel("times the older commit's figure")
    axes.set_ylim(0)
    axes.legend(fontsize=7)
    axes.tick_params(labelsize=7)
    picture.tight_layout()
    picture.savefig(IMAGES / "past.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    draw()
