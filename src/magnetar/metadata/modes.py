"""Who may see what a data directory holds: its user, and its user's group to read; the umask may take more away."""

from __future__ import annotations

FILE_MODE = 0o640
FOLDER_MODE = 0o750
