"""One archive with a folder of text files, which only its owner may read."""

from __future__ import annotations

import io
import os
import tarfile
import time
import zipfile
from pathlib import Path

from magnetar.admin.errors import AdminError, Declined

FORMS = ("tar.gz", "zip")


def packed(folder: str, files: dict[str, bytes], form: str) -> bytes:
    """Return an archive of these files, all of them below one folder."""
    made, now = io.BytesIO(), time.time()
    if form == "zip":
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                entry = zipfile.ZipInfo(f"{folder}/{name}", time.gmtime(now)[:6])
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100600 << 16
                archive.writestr(entry, content)
    else:
        with tarfile.open(fileobj=made, mode="w:gz") as archive:
            for name, content in files.items():
                about = tarfile.TarInfo(f"{folder}/{name}")
                about.size, about.mtime, about.mode = len(content), int(now), 0o600
                archive.addfile(about, io.BytesIO(content))
    return made.getvalue()


def place(output: Path | None, name: str, form: str) -> Path:
    """Return where the archive goes: into a directory under its name, or to the file that is named."""
    if output is None or output.is_dir():
        return (output or Path.cwd()).absolute() / f"{name}.{form}"
    return output.absolute()


def write(path: Path, content: bytes) -> None:
    """Write a new file; raise `Declined` for one that is there, and leave nothing where it fails."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Declined(f"{path} is there already", "Name another file with --output.") from None
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise AdminError(
            f"{path} was not written: {error.strerror or error}", "Name another place with --output."
        ) from error
