"""What an administrator does with pulsarctl, and what must come of it."""

from __future__ import annotations

CHECKS = ()
ONLY_OURS = ()
