#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures of the page with demo data.

    screens.py --readme docs/img/page.png   the one of the README
    screens.py DIRECTORY                    every view at three widths in both colour schemes, to look at
"""
import argparse
import base64
import pathlib
import sys
import tempfile
import time

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent / "api")]

import conftest  # noqa: E402
import demo  # noqa: E402
import harness  # noqa: E402

WIDTHS = [360, 1280, 2560]
CHART_S = 55  # so that the charts have something to show


def views(api, boxes):
    message = api.get("/v1/agents/planner-000/messages").ok()["data"][0]["id"]
    return {"overview": "", "matrix": "matrix", "events": "events", "why": f"why/{message}", "agents": "agents",
            "inbox": "inboxes/planner-000", "mailbox": f"mailboxes/{boxes[0]['id']}", "attachments": "attachments",
            "leases": "leases", "queues": "queues/channel_inbox/failed", "outbox": "outbox", "contracts": "contracts",
            "approvals": "approvals", "holds": "holds", "dead-letters": "dead-letters"}


def traffic(api, seconds):
    """Some requests every second: the charts of the overview are about them."""
    end = time.monotonic() + seconds
    i = 0
    while time.monotonic() < end:
        for _ in range(3 + i % 5):
            message = api.send("planner-001", "status?", sender="scout-001")
        if i % 2:
            api.read("planner-001", message["id"])
        i += 1
        time.sleep(0.3)


def picture(driver, width, height, dark):
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
    driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    time.sleep(0.5)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": False})
    return base64.b64decode(shot["data"])


def take_readme(browser, daemon, path):
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 1360, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    browser.open(daemon)
    traffic(daemon.client(), CHART_S)
    path.write_bytes(picture(browser.driver, 1360, 900, dark=False))


def take_all(browser, daemon, directory, boxes):
    directory.mkdir(parents=True, exist_ok=True)
    browser.open(daemon)
    traffic(daemon.client(), CHART_S)
    for name, view in views(daemon.client(), boxes).items():
        browser.go(view)
        browser.see("main h1")
        if name == "events":
            traffic(daemon.client(), 3)
        if name in ("inbox", "mailbox"):
            browser.click(".long td button.link")
        time.sleep(1)
        for width in WIDTHS:
            for dark in (False, True):
                shot = picture(browser.driver, width, 800 if width < 500 else 1000 if width < 2000 else 1300, dark)
                (directory / f"{name}-{width}-{'dark' if dark else 'light'}.png").write_bytes(shot)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("directory", nargs="?", type=pathlib.Path)
    options.add_argument("--readme", type=pathlib.Path)
    wanted = options.parse_args()
    with tempfile.TemporaryDirectory() as data:
        daemon = harness.Daemon(pathlib.Path(data) / "data", message_ttl_ms=4000, message_sweep_ms=500, agent_evict_after_ms=120_000).start()
        driver = conftest.make_driver()
        try:
            boxes = demo.fill(daemon.client())
            browser = conftest.Browser(driver)
            if wanted.readme:
                take_readme(browser, daemon, wanted.readme)
            if wanted.directory:
                take_all(browser, daemon, wanted.directory, boxes)
        finally:
            driver.quit()
            daemon.stop()


if __name__ == "__main__":
    main()
