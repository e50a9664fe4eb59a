"""A window of Debian's Chromium, and what its pages have to look like."""

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium")

from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

SHOTS = Path(__file__).parents[2] / "build" / "console"
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars")
LONG_NAME = "-".join(["department", "team", "service", "event"] * 4)
WIDE = 1280
#: The cells whose content is wider than they are: it is hidden, or covers the cell beside them.
CUT = """return [...document.querySelectorAll("td")].filter(
    one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent)"""


class Chromium:
    """A window of Chromium, and the words of a person who uses it."""

    def __init__(self, url: str, driver: Any) -> None:
        self.url = url.rstrip("/")
        self.driver = driver

    def open(self, path: str) -> None:
        self.driver.get(self.url + path)

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    @property
    def text(self) -> str:
        return str(self.find("main").text)

    def until(self, words: str) -> None:
        """Waits until the page shows these words."""
        wait = WebDriverWait(self.driver, 20, ignored_exceptions=(WebDriverException,))  # a page that is being replaced
        wait.until(lambda _: words in self.text, f"the page never says {words!r}")

    def unfold(self, title: str) -> None:
        self.driver.find_element(By.XPATH, f"//summary[text()='{title}']").click()

    def send(self, action: str, **fields: str) -> None:
        """Fills in the first form with this action, and presses its button."""
        form = self.find(f'form[action="{action}"]')
        for name, value in fields.items():
            field = form.find_element(By.NAME, name)
            if field.tag_name == "select":
                field.find_element(By.XPATH, f"./option[text()='{value}']").click()
            else:
                field.clear()
                field.send_keys(value)
        form.find_element(By.TAG_NAME, "button").click()

    def answer(self, yes: bool) -> str:
        """Answers the question of the page; returns it."""
        question = self.driver.switch_to.alert
        asked = str(question.text)
        if yes:
            question.accept()
        else:
            question.dismiss()
        return asked

    def looks(self, width: int, theme: str) -> None:
        device = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
        wish = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", wish)

    def shoot(self, name: str) -> None:
        """Keeps a picture of the whole page."""
        width, height = self.driver.execute_script("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, 3000), "scale": 1}
        taken = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        SHOTS.mkdir(parents=True, exist_ok=True)
        (SHOTS / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


@contextmanager
def a_window(url: str) -> Iterator[Chromium]:
    """A window of a browser of its own."""
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield Chromium(url, driver)
    finally:
        driver.quit()


def complaints(
    window: Chromium, pages: Mapping[str, str], width: int, theme: str, picture: str = ""
) -> tuple[list[str], list[str], list[str]]:
    """Opens pages, keeps a picture of each; what is wider than the window, cells that are cut, complaints of Chromium.

    `picture`: begins the names of the pictures.
    """
    window.looks(width, theme)
    wide, cut = [], []
    for name, path in pages.items():
        window.open(path)
        assert window.find("h1").text
        assert not window.driver.find_elements(By.CSS_SELECTOR, "[data-refused]"), f"{path}: {window.text}"
        window.shoot(f"{picture}{name}-{width}-{theme}")
        if window.driver.execute_script("return document.documentElement.scrollWidth > innerWidth"):
            wide.append(name)
        cut += [f"{name}: {text}" for text in window.driver.execute_script(CUT)]
    severe = [entry["message"] for entry in window.driver.get_log("browser") if entry["level"] == "SEVERE"]
    window.looks(WIDE, "light")
    return wide, cut, [line for line in severe if "favicon" not in line]
