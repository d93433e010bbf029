# SPDX-License-Identifier: Apache-2.0
"""Statements of the documents, held against the program: settings and their defaults, fields, events, metrics, routes,
commands, exit codes. A name in `code` that looks like one of them must be one."""
import os
import re
import subprocess
from pathlib import Path

import pytest

import catalogue

ROOT = Path(__file__).resolve().parents[2]
LAPSED = os.environ.get("LAPSED", str(ROOT / "build-dev" / "lapsed"))
LAPSE = os.environ.get("LAPSE", str(ROOT / "build-dev" / "lapse"))
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")])

# Words of other programs, of the source, of SQL and of logs, which the documents may name as well.
OTHER_WORDS = {
    "daemon_run", "install_manifest", "sqlite_busy", "wal_autocheckpoint", "mcp_agent_mail", "pg_cron", "client_max_body_size",
}


def said(program, *words):
    return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout


def defaults():
    """setting → default, as `lapsed --help` prints it."""
    rows = {}
    for flag, rest in re.findall(r"^  --([a-z-]+)[^\n]*?(?:\(([^()]*)\))?$", said(LAPSED, "--help"), re.M):
        rows[flag.replace("-", "_")] = rest
    return rows


UNITS = {"": 1, "ms": 1, "µs": 0.001, "s": 1000, "min": 60_000, "minute": 60_000, "minutes": 60_000, "h": 3_600_000, "hour": 3_600_000,
         "days": 86_400_000, "day": 86_400_000, "d": 86_400_000, "kib": 1024, "mib": 1024 ** 2, "gib": 1024 ** 3}


def quantity(text):
    """A number with a unit as people write it; None when it is something else."""
    found = re.fullmatch(r"(an?|\d[\d  ]*)\s*([A-Za-zµ]*)", text.strip())
    if not found or found.group(2).lower() not in UNITS:
        return None
    number = 1 if found.group(1) in ("a", "an") else int(re.sub(r"\D", "", found.group(1)))
    return number * UNITS[found.group(2).lower()]


def prose(page):
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M)


def test_defaults_that_are_named_are_the_defaults():
    """`message_ttl_ms` (24 h), or `name = value`."""
    program, wrong, checked = defaults(), [], 0
    for page in PAGES:
        for name, shown in re.findall(r"`([a-z_]+)` \(([^()`;,]+)", prose(page)):
            value = quantity(shown)
            if name not in program or value is None or not re.fullmatch(r"-?\d+", program[name] or ""):
                continue
            checked += 1
            if value != int(program[name]):
                wrong.append(f"{page.name}: {name} is {program[name]}, not {shown}")
    assert not wrong and checked >= 20, (wrong, checked)


def words_of_the_program():
    document = catalogue.openapi(LAPSED)
    words = set(defaults()) | {f"{name}_ms" for name in defaults()}

    def walk(node):
        if isinstance(node, dict):
            words.update(node.get("properties", {}))
            if "name" in node and "in" in node:
                words.add(node["name"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)
        elif isinstance(node, str):
            words.add(node)
    walk(document)
    # Names of logs, of members of events, of tables and of the matrix are texts of the source.
    for path in (ROOT / "src").rglob("*.[ch]"):
        words.update(re.findall(r'"([a-z][a-z_]*[a-z])"', path.read_text()))
    for path in (ROOT / "src").rglob("*.sql"):
        words.update(re.findall(r"\b[a-z_]+\b", path.read_text()))
    for path in [ROOT / "include" / "lapse.h", ROOT / "src" / "base" / "settings.h"]:
        words.update(re.findall(r"\b[a-z_]+\b", path.read_text()))
    return words


def test_names_in_code_exist():
    words, strange = words_of_the_program() | OTHER_WORDS, []
    for page in PAGES:
        if page.name in ("performance.md", "postgresql.md", "stalwart.md"):
            continue  # they speak of other programs
        for name in re.findall(r"`([a-z]+(?:_[a-z]+)+)(?:\{[a-z,]+\})?`", prose(page)):
            if not name.startswith(("lapse_", "process_", "lifecycle_")) and name not in words:
                strange.append(f"{page.name}: {name}")
    assert not strange


def test_events_that_are_named_exist():
    events = set(catalogue.event_names(ROOT))
    logs = set()
    for path in (ROOT / "src").rglob("*.c"):
        logs.update(re.findall(r'"([a-z_]+\.[a-z_]+)\\?"', path.read_text()))
    rooms = {name.split(".")[0] for name in events}
    strange = [f"{page.name}: {name}" for page in PAGES
               for name in re.findall(r"`([a-z_]+\.[a-z_]+)`", prose(page))
               if name.split(".")[0] in rooms and name not in events | logs]
    assert not strange


def test_metrics_that_are_named_exist():
    families = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.M))
    assert len(families) > 25
    header = (ROOT / "include" / "lapse.h").read_text()
    strange = []
    for page in PAGES:
        for name in re.findall(r"`((?:lapse|lifecycle|process)_[a-z_]+)(?:\{[a-z,=\"]+\})?`", prose(page)):
            if name not in families and name not in header and name not in ("lapse_leases", "lapse_store_reconnects_total"):
                strange.append(f"{page.name}: {name}")
    assert not strange


def test_routes_that_are_named_exist():
    paths = {**catalogue.openapi(LAPSED)["paths"], "/mcp": {"post": {}}}  # a door of its own: docs/mcp.md
    patterns = {re.compile(re.sub(r"\{\w+\}", "[^/]+", path)): item for path, item in paths.items()}
    strange = []
    for page in PAGES:
        text = page.read_text()
        for method, path in re.findall(r"\b(GET|PUT|POST|DELETE|PATCH|HEAD) (/[\w{}/.-]+)", text):
            method = "get" if method == "HEAD" else method.lower()
            if not any(pattern.fullmatch(path.rstrip(".")) and method in item for pattern, item in patterns.items()):
                strange.append(f"{page.name}: {method.upper()} {path}")
    assert not strange


def commands():
    """Every spelling that `lapse help` lists."""
    listed = set()
    for line in said(LAPSE, "help").split("Options of every command")[0].splitlines():
        found = re.match(r"  ([a-z][a-z -]*(?:, [a-z][a-z -]*)*?)(?:  |$)", line)
        if found:
            listed |= {name.strip() for name in found.group(1).split(",")}
    return listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_named_exist(page):
    nouns = {name.split()[0] for name in commands()}
    assert {"status", "send", "mailbox"} <= nouns
    text = page.read_text()
    code = "\n".join(re.findall(r"^```(?:sh)?$(.*?)^```", text, re.S | re.M) + re.findall(r"`(lapse [^`]+)`", text))
    for word in re.findall(r"(?:^|[(|] ?)(?:build/)?lapse (?:--json |--(?:owner|url|token-file) \S+ )*([a-z][a-z-]*)", code, re.M):
        helped = subprocess.run([LAPSE, "help", word], capture_output=True, text=True)
        assert helped.returncode == 0, f"lapse {word}: {helped.stderr}"


def test_exit_codes_are_those_of_the_program():
    table = (ROOT / "docs" / "operating.md").read_text().split("| exit code |")[1].split("\n\n")[0]
    documented = {int(code) for row in table.splitlines()[2:] for code in re.findall(r"\d+", row.split("|")[1])}
    listed = {int(code) for code in re.findall(r"^  (\d+) ", said(LAPSED, "--help").split("Exit codes:")[1], re.M)}
    assert documented == listed == {0, 1, 2, 130, 134, 143}


def ended(process, *signals):
    for one in signals:
        process.send_signal(one)
    return process.wait(20)


def test_the_daemon_ends_with_them(tmp_path):
    wrong = subprocess.run([LAPSED, "--no-such-setting", "1"], capture_output=True)
    assert wrong.returncode == 2
    (tmp_path / "file").write_text("")
    cannot = subprocess.run([LAPSED, "--data-dir", str(tmp_path / "file"), "--listen", "127.0.0.1:0"], capture_output=True)
    assert cannot.returncode == 1, cannot.stderr
