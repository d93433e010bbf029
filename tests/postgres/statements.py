# SPDX-License-Identifier: Apache-2.0
"""Every statement of the program, read from what the compiler reads.

A statement is a `struct db_stmt`, so each mention of that type in our preprocessed sources is either
understood (a pointer, the type itself, one statement made of string literals) or an error: a
statement cannot be written in a form that goes unseen."""
import concurrent.futures
import json
import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"

# SQLite's own statements (BEGIN IMMEDIATE, VACUUM INTO) and what is made at run time, which
# tests/postgres/texts.c prints.
DRIVER = SOURCE / "store" / "sqlite"
# Reads SQLite's catalogue, and makes its statements from it; tests/postgres/test_move.py runs them.
MOVE = {SOURCE / "store" / "postgres" / name for name in ("move.c", "move_table.c")}
MADE_AT_RUN_TIME = {SOURCE / "engine" / "bound.h": "due, own_due, prune, newest, find, lock, held, look, look_by, referenced;"}

MENTION = re.compile(r"\bstruct\s+db_stmt\b\s*")
LITERAL = r'"(?:[^"\\]|\\.)*"'
STATEMENT = re.compile(rf"(\w+)\s*=\s*\{{\s*((?:{LITERAL}\s*)+),?\s*\}}\s*;")
MARKER = re.compile(r'^# (\d+) "([^"]*)"', re.M)


class Unseen(Exception):
    """A struct db_stmt in a form that this file does not read."""


def preprocess(entry):
    command = [part for part in shlex.split(entry["command"]) if part != "ccache"]
    out = command.index("-o")
    del command[out:out + 2]
    command[command.index("-c")] = "-E"
    done = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True,
                          timeout=60, check=True)
    return done.stdout


def own_parts(text, directory):
    """(file, its text) for the stretches that come from our sources."""
    marks = list(MARKER.finditer(text))
    for i, mark in enumerate(marks):
        path = (Path(directory) / mark.group(2)).resolve()
        end = marks[i + 1].start() if i + 1 < len(marks) else len(text)
        if SOURCE in path.parents:
            yield path, text[mark.end():end]


def unquote(literals):
    return "".join(json.loads(one) for one in re.findall(LITERAL, literals))


def read_mentions(path, text):
    """The statements that follow each mention of the type; the text is all of one file."""
    for mention in MENTION.finditer(text):
        rest = text[mention.end():]
        if rest[:1] in "*{;":
            continue
        made = MADE_AT_RUN_TIME.get(path)
        if made and re.sub(r"\s+", " ", rest).startswith(made):
            continue
        statement = STATEMENT.match(rest)
        if not statement:
            raise Unseen(f"{path.relative_to(ROOT)}: write this statement as "
                         f"'static const struct db_stmt NAME = {{ \"…\" }};': {rest[:60]!r}")
        yield f"{path.relative_to(SOURCE)}:{statement.group(1)}", unquote(statement.group(2))


def statements_of(entry):
    parts = {}
    for path, text in own_parts(preprocess(entry), entry["directory"]):
        parts[path] = parts.get(path, "") + text
    return [found for path, text in parts.items() if DRIVER not in path.parents and path not in MOVE
            for found in read_mentions(path, text)]


def collect(build):
    """{where: sql} of the whole program."""
    entries = [entry for entry in json.loads((build / "compile_commands.json").read_text())
               if SOURCE in Path(entry["file"]).resolve().parents]
    unique = {entry["file"]: entry for entry in entries}.values()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return {where: sql for found in pool.map(statements_of, unique) for where, sql in found}
