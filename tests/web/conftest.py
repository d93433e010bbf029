# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a daemon, and a real Chromium that looks at it."""
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

import harness

WAIT_S = 20


class Browser:
    """One window. Every wait has a deadline; `problems` is what the page complained about."""

    def __init__(self, driver):
        self.driver = driver
        self.url = None

    def open(self, daemon, view=""):
        self.url = f"http://127.0.0.1:{daemon.port}"
        self.driver.get(f"{self.url}/#/{view}")
        self.see("nav a[aria-current]")

    def go(self, view):
        self.driver.execute_script("location.hash = arguments[0]", f"#/{view}")

    def settle(self, view):
        """The view is in the document, and everything it asked for has come."""
        name = view.split("/")[0]
        def there():
            return self.driver.execute_script(
                "const a = document.querySelector('nav a[aria-current]');"
                "return a?.getAttribute('href') === arguments[0] && document.querySelector('main h1') !== null"
                " && !/Looking…|Loading…/.test(document.querySelector('main').innerText)", f"#/{name}")
        harness.wait_until(self.steady(there), WAIT_S, f"the view {view!r}", 0.05)

    def see(self, selector, text=None):
        """The first visible element of the selector, with the text in it if one is given."""
        def probe():
            for element in self.driver.find_elements(By.CSS_SELECTOR, selector):
                if element.is_displayed() and (text is None or text in element.text):
                    return element
            return None
        return harness.wait_until(self.steady(probe), WAIT_S, f"{selector} with {text!r}", 0.05)

    def gone(self, selector):
        harness.wait_until(self.steady(lambda: not self.driver.find_elements(By.CSS_SELECTOR, selector)),
                           WAIT_S, f"no {selector}", 0.05)

    @staticmethod
    def steady(probe):
        """Views redraw themselves: an element that went away meanwhile is looked for again."""
        from selenium.common.exceptions import StaleElementReferenceException

        def again():
            try:
                return probe()
            except StaleElementReferenceException:
                return None
        return again

    def click(self, selector, text=None):
        self.driver.execute_script("arguments[0].click()", self.see(selector, text))

    def type(self, selector, text):
        field = self.see(selector)
        field.clear()
        field.send_keys(text)

    def text(self):
        return self.driver.find_element(By.TAG_NAME, "body").text

    def problems(self):
        """What the console says, without the network's own words about an answer the page expects."""
        return [entry["message"] for entry in self.driver.get_log("browser")
                if "Failed to load resource" not in entry["message"]]


def make_driver():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    driver.set_script_timeout(WAIT_S)
    return driver


@pytest.fixture(scope="session")
def chromium():
    driver = make_driver()
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium):
    """A fresh tab whose console must stay clean."""
    chromium.get("about:blank")
    chromium.get_log("browser")
    browser = Browser(chromium)
    yield browser
    assert browser.problems() == []
    chromium.get("about:blank")


@pytest.fixture
def start(tmp_path):
    started = []

    def start_one(**options):
        daemon = harness.Daemon(tmp_path / f"data-{len(started)}", **options).start()
        started.append(daemon)
        return daemon

    yield start_one
    for daemon in started:
        daemon.stop()


@pytest.fixture
def daemon(start):
    return start()
