# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL for tests, through the libpq that lapsed itself uses: no Python package is needed.

    db = Connection("postgresql://…")
    db.run("SELECT id FROM messages WHERE agent = $1", "bob")   # [{"id": 1}, …]
    db.close()
"""
import ctypes

_pq = ctypes.CDLL("libpq.so.5")
_TEXTS = ctypes.POINTER(ctypes.c_char_p)
for name, result, *arguments in (
        ("PQconnectdb", ctypes.c_void_p, ctypes.c_char_p),
        ("PQstatus", ctypes.c_int, ctypes.c_void_p),
        ("PQerrorMessage", ctypes.c_char_p, ctypes.c_void_p),
        ("PQfinish", None, ctypes.c_void_p),
        ("PQexec", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p),
        ("PQexecParams", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p,
         _TEXTS, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int),
        ("PQresultStatus", ctypes.c_int, ctypes.c_void_p),
        ("PQresultErrorMessage", ctypes.c_char_p, ctypes.c_void_p),
        ("PQclear", None, ctypes.c_void_p),
        ("PQntuples", ctypes.c_int, ctypes.c_void_p),
        ("PQnfields", ctypes.c_int, ctypes.c_void_p),
        ("PQfname", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int),
        ("PQftype", ctypes.c_uint, ctypes.c_void_p, ctypes.c_int),
        ("PQgetvalue", ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int),
        ("PQgetisnull", ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)):
    function = getattr(_pq, name)
    function.restype, function.argtypes = result, arguments

CONNECTION_OK, COMMAND_OK, TUPLES_OK, EMPTY = 0, 1, 2, 0
READERS = {16: lambda text: int(text == "t"), 20: int, 21: int, 23: int, 1700: lambda text: int(float(text))}


class PqError(Exception):
    """What the server, or libpq, said."""


class Connection:
    """One session."""

    def __init__(self, url):
        self.conn = _pq.PQconnectdb(url.encode())
        if _pq.PQstatus(self.conn) != CONNECTION_OK:
            words = _pq.PQerrorMessage(self.conn).decode()
            self.close()
            raise PqError(words)

    def close(self):
        _pq.PQfinish(self.conn)
        self.conn = None

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()

    def run(self, sql, *values):
        """Runs one statement (or, without values, a script); the rows of the last one, as dicts."""
        if values:
            texts = (ctypes.c_char_p * len(values))(
                *[None if value is None else str(value).encode() for value in values])
            result = _pq.PQexecParams(self.conn, sql.encode(), len(values), None, texts, None, None, 0)
        else:
            result = _pq.PQexec(self.conn, sql.encode())
        try:
            if _pq.PQresultStatus(result) not in (COMMAND_OK, TUPLES_OK, EMPTY):
                raise PqError(_pq.PQresultErrorMessage(result).decode())
            return [self._row(result, i) for i in range(_pq.PQntuples(result))]
        finally:
            _pq.PQclear(result)

    @staticmethod
    def _row(result, i):
        row = {}
        for j in range(_pq.PQnfields(result)):
            text = None if _pq.PQgetisnull(result, i, j) else _pq.PQgetvalue(result, i, j).decode()
            read = READERS.get(_pq.PQftype(result, j), str)
            row[_pq.PQfname(result, j).decode()] = None if text is None else read(text)
        return row
