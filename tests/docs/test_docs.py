# SPDX-License-Identifier: Apache-2.0
"""Documents that are generated or promise to run: the README's tour, the matrix, lapsed(8).

WRITE_DOCS=1 writes the generated ones anew (make docs)."""
import json
import os
import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAPSED = os.environ.get("LAPSED", str(ROOT / "build-dev" / "lapsed"))
LAPSE = os.environ.get("LAPSE", str(ROOT / "build-dev" / "lapse"))
WRITE = os.environ.get("WRITE_DOCS") == "1"


@pytest.fixture()
def url(tmp_path):
    daemon = subprocess.Popen(
        [LAPSED, "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = daemon.stdout.readline()
    assert line.startswith("lapsed ready on "), daemon.stderr.read()
    yield line.split()[-1]
    daemon.terminate()
    assert daemon.wait(15) == 0


def check(path, text):
    if WRITE:
        path.write_text(text)
    assert path.read_text() == text, f"{path.name} is stale: run 'make docs'"


def test_the_tour_of_the_readme_runs(url):
    readme = (ROOT / "README.md").read_text()
    tour = re.search(r"<!-- tour -->\n```sh\n(.*?)```", readme, re.S).group(1)
    tour = tour.replace("http://127.0.0.1:7878", url).replace("build/lapse", LAPSE)
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", tour], text=True, timeout=60,
                          capture_output=True, env={**os.environ, "LAPSE_URL": url})
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in ("the build is green", "the deploy is done", "claim_id", "backups/lapse-",
                     "lifecycle_prune_rows_total", "ready"):
        assert expected in done.stdout, (expected, done.stdout)


def test_every_link_of_the_readme_exists():
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / target).exists(), target


def test_the_matrix_page_is_the_engines_matrix(url):
    rows = json.load(urllib.request.urlopen(url + "/v1/matrix"))["data"]
    text = ("# The maintenance matrix\n\nGenerated from the running engine by `make docs`; "
            "`lapse matrix` shows it with live figures.\n\n"
            "| table | scheduler | bounded by | due when | safety rule | action | paths |\n"
            "|---|---|---|---|---|---|---|\n")
    for r in rows:
        text += (f"| `{r['table']}` | {r['scheduler']} | {r['bounded_by']} | {r['due_when']} | "
                 f"{r['safety_rule']} | {r['action']} | {', '.join(r['paths'])} |\n")
    check(ROOT / "docs" / "matrix.md", text)


def test_the_manual_page_of_the_daemon_is_current():
    text = subprocess.run([LAPSED, "--man"], text=True, capture_output=True, check=True).stdout
    check(ROOT / "docs" / "man" / "lapsed.8", text)
    warnings = subprocess.run(["man", "--warnings", "-l", str(ROOT / "docs/man/lapsed.8")],
                              text=True, capture_output=True, env={**os.environ, "MANPAGER": "cat"})
    assert warnings.returncode == 0 and warnings.stderr == "", warnings.stderr


def test_every_setting_is_in_the_manual_page():
    helped = subprocess.run([LAPSED, "--help"], text=True, capture_output=True, check=True).stdout
    page = (ROOT / "docs" / "man" / "lapsed.8").read_text().replace("\\-", "-")
    flags = re.findall(r"^  (--[a-z-]+)", helped, re.M)
    assert len(flags) > 20
    for flag in flags:
        assert flag in page, flag
