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

import catalogue

ROOT = Path(__file__).resolve().parents[2]
LAPSED = os.environ.get("LAPSED", str(ROOT / "build-dev" / "lapsed"))
LAPSE = os.environ.get("LAPSE", str(ROOT / "build-dev" / "lapse"))
WRITE = os.environ.get("WRITE_DOCS") == "1"


def start(tmp_path, *flags):
    daemon = subprocess.Popen(
        [LAPSED, *flags, "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = daemon.stdout.readline()
    assert line.startswith("lapsed ready on "), daemon.stderr.read()
    return daemon, line.split()[-1]


@pytest.fixture()
def url(tmp_path):
    daemon, address = start(tmp_path)
    yield address
    daemon.terminate()
    assert daemon.wait(15) == 0


@pytest.fixture()
def brief_url(tmp_path):
    """A daemon with the lifetimes of the tour."""
    daemon, address = start(tmp_path, "--config", str(ROOT / "examples" / "tour.conf"))
    yield address
    daemon.terminate()
    assert daemon.wait(15) == 0


def check(path, text):
    if WRITE:
        path.write_text(text)
    assert path.read_text() == text, f"{path.name} is stale: run 'make docs'"


def run_block(mark, url):
    """Runs the README's block after `<!-- mark -->`, as it stands."""
    block = re.search(rf"<!-- {mark} -->\n```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(1)
    block = block.replace("http://127.0.0.1:7878", url).replace("build/lapse", LAPSE)
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], text=True, timeout=120, cwd=ROOT,
                          capture_output=True, env={**os.environ, "LAPSE_URL": url})
    assert done.returncode == 0, done.stdout + done.stderr
    return block, done.stdout


def test_the_tour_of_the_readme_shows_things_lapse(brief_url):
    _, shown = run_block("tour", brief_url)
    events = [line for line in shown.splitlines() if re.match(r"\d{4}-\d\d-\d\dT", line)]
    for kind, said in (("message.pruned", "read and older than message_ttl_ms"), ("agent.evicted", "agent_id=bob"),
                       ("attachment.cleaned", "reason=expired"), ("mailbox.expired", "short@"),
                       ("mailbox.renewed", "long@")):
        assert any(kind in line and said in line for line in events), (kind, shown)
    assert sum("mailbox.expired" in line for line in events) == 1, "the renewed one stays"
    after = shown[shown.rindex(events[-1]) + len(events[-1]):]
    assert "please review" in after and "the build is green" not in after
    assert "long@lapse.local" in after and '"status":"expired"' in after


def test_the_ten_tasks_of_the_readme_run(url):
    block, shown = run_block("tasks", url)
    assert re.findall(r"^# (\d+)\. ", block, re.M) == [str(n) for n in range(1, 11)]
    for expected in ("resize picture 7", "working on: resize picture 7\n", "resizer", "482913\n", "# lapse",
                     "writing with token ", "is held", "incident 12", "messages", "ready", "lapse_live_rows",
                     "backups/lapse-"):
        assert expected in shown, (expected, shown)


def test_nothing_of_the_readme_is_left_for_later():
    readme = (ROOT / "README.md").read_text()
    assert "nothing to do" not in readme.lower()
    light, dark = (re.sub(r"<style>.*?</style>", "", (ROOT / "docs" / "img" / f"lifetimes-{name}.svg").read_text(),
                          flags=re.S) for name in ("light", "dark"))
    assert light == dark, "the two pictures differ in more than colours"


PAGES = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
                *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)]*)?\)", page.read_text()):
        if target.startswith("http"):
            continue
        found = page.parent / target if target else page
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            titles = re.findall(r"^#+ (.*)$", found.read_text(), re.M)
            slugs = {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor[1:] in slugs, (target, anchor)


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


def test_the_catalogue_of_events_is_current():
    check(ROOT / "docs" / "event-catalogue.md", catalogue.events_page(ROOT))


def test_the_catalogue_of_errors_is_current():
    check(ROOT / "docs" / "errors.md", catalogue.errors_page(catalogue.openapi(LAPSED)))


def test_the_catalogue_of_metrics_is_current(url):
    urllib.request.urlopen(url + "/v1/agents").read()
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    check(ROOT / "docs" / "metrics.md", catalogue.metrics_page(text))
