# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmark about the page, in a real Chromium: how soon it is there, and whether it stays quick."""
import time

import stores
from rows import Figure, Row, column
from servers import BenchError, Lapse

RATE = 1000  # events a second
LOAD_MAX_MS = 1000
TASK_MAX_MS = 100
SHOWN_MAX_S = 60

#: Notes when the overview has its facts, and every task that takes longer than 50 ms.
WATCH = """
window.watched = { shown: null, tasks: [] };
new PerformanceObserver((list) => watched.tasks.push(...list.getEntries().map((e) => e.duration))).observe({ type: "longtask", buffered: true });
new MutationObserver((_, self) => {
  if (!document.querySelector(".hero .say")) return;
  watched.shown = performance.now();
  self.disconnect();
}).observe(document, { childList: true, subtree: true });
"""

#: What Chromium itself measured.
FIGURES = """
const [page] = performance.getEntriesByType("navigation"), files = performance.getEntriesByType("resource");
const paint = performance.getEntriesByName("first-contentful-paint")[0];
return { load: page.loadEventEnd, paint: paint ? paint.startTime : 0, shown: watched.shown,
  bytes: [page, ...files].reduce((n, r) => n + r.transferSize, 0), requests: files.length + 1, tasks: watched.tasks };
"""


def chromium():
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError as missing:
        raise BenchError("the rows of the page need Debian's chromium-driver and python3-selenium: make deps-web") from missing
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(flag)
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    driver.execute_cdp_cmd("Network.enable", {})
    return driver


def await_page(driver, script, what):
    end = time.monotonic() + SHOWN_MAX_S
    while not driver.execute_script(script):
        if time.monotonic() > end:
            raise BenchError(f"the page did not show {what}")
        time.sleep(0.05)


def load_once(lapse):
    """One load with an empty cache, by a browser that has seen nothing yet."""
    driver = chromium()
    try:
        driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
        driver.get(f"http://{lapse.address}/")
        await_page(driver, "return watched.shown !== null && performance.getEntriesByType('navigation')[0].loadEventEnd > 0", "the overview")
        return driver.execute_script(FIGURES)
    finally:
        driver.quit()


def page_load(bench):
    scale = bench.scale
    with Lapse(bench.lapsed, stores.copy(bench, bench.store(scale.due_few, scale.live_many), "lapse")) as lapse:
        samples = [load_once(lapse) for _ in range(scale.rounds)]
    shown = Figure("overview shown", "ms", column(samples, "shown"))
    row = Row("page-load", f"from the request of the page to an overview with its facts, on a store of {scale.live_many:,} messages, "
              "empty cache, by Chromium's clock", shown, target=f"≤ {LOAD_MAX_MS} ms", met=shown.median <= LOAD_MAX_MS)
    row.figures = [Figure("load event", "ms", column(samples, "load")), Figure("first contentful paint", "ms", column(samples, "paint")),
                   Figure("transferred", "B", column(samples, "bytes")), Figure("requests", "", column(samples, "requests"))]
    return row


def follow_once(bench, lapse):
    """The view of events while so many come, and what it counted."""
    driver = chromium()
    try:
        driver.get(f"http://{lapse.address}/#/events")
        await_page(driver, "return document.querySelector('.filters .badge')?.textContent === 'live'", "the events")
        driver.execute_script("watched.tasks.length = 0")
        sent = bench.load(lapse, ["--path", "/v1/agents/agent-%05u/messages", "--body", '{"from":"bench","content":"tick"}', "--spread", str(stores.AGENTS),
                                  "--connections", "8", "--rate", str(RATE), "--seconds", str(max(bench.scale.seconds, 5))])["answered"]
        await_page(driver, f"return Number(document.querySelector('.filters .quiet').textContent.replace(/[^0-9]/g, '')) >= {sent}", f"{sent} events")
        tasks = driver.execute_script("return watched.tasks")
        return {"longest": max(tasks, default=0), "long": len(tasks), "events": sent}
    finally:
        driver.quit()


def page_events(bench):
    with Lapse(bench.lapsed, bench.directory("lapse"), settings=["--unread-max-per-agent", "1000000"]) as lapse:
        samples = [follow_once(bench, lapse) for _ in range(bench.scale.rounds)]
    longest = Figure("longest task", "ms", column(samples, "longest"))
    row = Row("page-events", f"the longest task of the page while {RATE:,} events a second arrive on it (0 = none took 50 ms)", longest,
              target=f"≤ {TASK_MAX_MS} ms", met=longest.median <= TASK_MAX_MS)
    row.figures = [Figure("tasks over 50 ms", "", column(samples, "long")), Figure("events shown", "", column(samples, "events"))]
    return row


ROWS = {"page-load": page_load, "page-events": page_events}
