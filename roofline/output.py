"""Writing an answer to a file: the whole of it, or the old file untouched."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

from roofline.errors import InputError

__all__ = ["check_output", "write_atomically", "write_bytes_atomically"]


def check_output(path: Path) -> None:
    """Refuse a link, which may lead anywhere, and what is there but is no file: it stays."""
    if path.is_symlink() or (path.exists() and not (path.is_file() or path.is_dir())):
        raise InputError(f"-o {path}: is a link or a device; give the path of the file itself")


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` beside ``path`` and move it into place in one step."""
    write_bytes_atomically(path, text.encode())


def write_bytes_atomically(path: Path, content: bytes) -> None:
    """Write ``content`` beside ``path`` and move it into place in one step."""
    try:
        check_output(path)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        remedy = "give a path in a folder that exists and can be written to"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "make room, or give a path on another disk"
        raise InputError(f"-o {path}: cannot be written ({error.strerror}); {remedy}") from None
