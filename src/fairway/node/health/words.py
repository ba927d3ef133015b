"""What a container says as it ends: the file `message` of its attempt, or where it asks for that the end of its log.

The file is mounted at `terminationMessagePath` where that is not Kubernetes' default path, which would have to be made
in this machine's /dev; in any case its path is in the variable FAIRWAY_TERMINATION_LOG.
"""

import os
from pathlib import Path

from fairway.node.container import Attempt
from fairway.node.environment import DEFAULT_PATH, Container
from fairway.node.logs import HEAD, files_of

FILE_BYTES, LOG_BYTES, LOG_LINES = 4096, 2048, 80


def message_path(container: Container) -> str:
    """Where the file is to be mounted; empty: nowhere."""
    path = container.get("terminationMessagePath") or DEFAULT_PATH
    return "" if path == DEFAULT_PATH else os.path.normpath(f"/{path}")


def last_words(attempt: Attempt, container: Container) -> str:
    """The message of an attempt that is over."""
    if attempt.message:
        return attempt.message
    said = _end(attempt.folder / "message", FILE_BYTES)
    if not said and attempt.code and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        lines = [each for it in files_of(attempt.folder)[-1:] for each in _lines(attempt.folder / it.name)]
        said = "\n".join(lines[-LOG_LINES:])[-LOG_BYTES:]
    return said


def _lines(log: Path) -> list[str]:
    """The last lines of a log, without what stands before their text; the first may begin in its middle."""
    most = LOG_BYTES + LOG_LINES * HEAD
    text = _end(log, most)
    return [line[HEAD:] for line in text.splitlines()[len(text) >= most :]]


def _end(path: Path, most: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most))
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""
