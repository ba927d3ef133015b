"""The file: one SQLite database that holds every object and the recent history, append-only.

A row is one write: the object as it became, or as it last was (`gone`). The newest row of a key is the object; older
rows are the history that watches resume from, until compaction drops them. So a write is one insert, and a restart
reads the table once, in order.

Rules. A file is read and checked whole (format, b-trees, a checksum per row) through a read-only connection before it
is opened for writing: what is damaged, newer or not ours is refused in one line and stays as it was. One process owns
the file. `write` returns after the commit reached the disk (WAL, synchronous FULL); a commit that fails leaves nothing.
Nothing here is newer than SQLite 3.35, and nothing here knows what the objects mean.
"""

import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from fairway.embedded.disk import Reserve

APPLICATION = 0x46574159  # "FWAY", in the header of the file
STEPS = (  # step n takes format n to n + 1; an older file takes the steps it lacks
    f"""
    CREATE TABLE history (revision INTEGER PRIMARY KEY, resource TEXT NOT NULL, namespace TEXT NOT NULL,
                          name TEXT NOT NULL, gone INTEGER NOT NULL, checksum INTEGER NOT NULL, value BLOB NOT NULL);
    CREATE TABLE horizon (revision INTEGER NOT NULL);
    INSERT INTO horizon VALUES (0);
    PRAGMA application_id = {APPLICATION};
    """,
)


class Unusable(Exception):
    """The file cannot be used; the text is one line for the user. Nothing was changed."""


class Full(Exception):
    """The disk is full. The write did not happen."""


class Row(NamedTuple):
    revision: int
    resource: str
    namespace: str
    name: str
    gone: bool
    value: bytes


class Database:
    """Opened by one process, used by one thread at a time. `rows` and `horizon` are what the file held. `reserve`:
    bytes that are kept back for a full disk, from the first `reserve.fill` on."""

    def __init__(self, path: str, *, reserve: int = 0) -> None:
        self.path, self.reserve = path, Reserve(Path(f"{path}.reserve"), reserve)
        self.reserve.start()
        self.rows, self.horizon = _read(path)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            os.chmod(path, 0o600)
            self._connection = _open(path)
        except OSError as error:
            raise Unusable(f"{path} cannot be opened: {error.strerror}") from error
        except sqlite3.Error as error:
            raise Unusable(_sentence(path, error)) from error

    def write(self, rows: Sequence[Row], drop: Sequence[int], *, horizon: int) -> None:
        """Commits `rows`, without the revisions in `drop`: history at or before `horizon` is no longer whole."""
        while True:
            try:
                self._commit(rows, drop, horizon)
                return
            except Full:
                if not self.reserve.free():
                    raise

    def _commit(self, rows: Sequence[Row], drop: Sequence[int], horizon: int) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?)", map(_columns, rows))
            connection.executemany("DELETE FROM history WHERE revision = ?", ((revision,) for revision in drop))
            connection.execute("UPDATE horizon SET revision = ?", (horizon,))
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if _code(error) == sqlite3.SQLITE_FULL:
                raise Full(f"no space left for {self.path}: the write did not happen") from error
            raise

    def close(self) -> None:
        self._connection.close()


def _columns(row: Row) -> tuple[int, str, str, str, bool, int, bytes]:
    return (*row[:5], zlib.crc32(row.value), row.value)


def _open(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=2, isolation_level=None, check_same_thread=False)
    # Exclusive: two servers on one file would each believe its own memory.
    for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for number, step in enumerate(STEPS[version:], version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {step} PRAGMA user_version = {number}; COMMIT;")
    connection.executescript("BEGIN IMMEDIATE; COMMIT;")  # takes the lock now, and not at the first write
    return connection


def _read(path: str) -> tuple[list[Row], int]:
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return [], 0
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, timeout=2)) as connection:
            _check(path, connection)
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                return [], 0
            horizon = connection.execute("SELECT revision FROM horizon").fetchone()[0]
            return list(_rows(path, connection)), horizon
    except sqlite3.Error as error:
        raise Unusable(_sentence(path, error)) from error


def _check(path: str, connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION and (tables or version):
        raise Unusable(f"{path} is not a database of Fairway: move it away, or choose another data directory")
    if version > len(STEPS):
        raise Unusable(f"{path} has format {version}, and this Fairway knows {len(STEPS)}: use the newer Fairway that "
                       "wrote it, or choose another data directory")
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise Unusable(_damaged(path, found))


def _rows(path: str, connection: sqlite3.Connection) -> Iterator[Row]:
    query = "SELECT revision, resource, namespace, name, gone, value, checksum FROM history ORDER BY revision"
    for *columns, checksum in connection.execute(query):
        row = Row(*columns)
        if zlib.crc32(row.value) != checksum:
            raise Unusable(_damaged(path, f"{row.resource} {row.namespace}/{row.name} does not match its checksum"))
        yield row


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary code; 0 for errors that are Python's."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _sentence(path: str, error: sqlite3.Error) -> str:
    code = _code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"{path} is in use by another process: stop that one first, or choose another data directory"
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return f"{path} cannot be opened ({error}): check the directory and its permissions"
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL):
        return f"{path} cannot be read or written ({error}): free some space, or check the disk, then start again"
    return _damaged(path, str(error))


def _damaged(path: str, what: str) -> str:
    return f"{path} is damaged ({what}): restore a copy or move it away; nothing in it was changed"
