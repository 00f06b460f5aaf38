"""Pages in a real browser: values on hover, switches, no network.

Slow: `pytest -m slow`. It needs Debian's `chromium` and `chromium-driver`.
"""

import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
from pages import RUNS

from ibdrr_tf.evaluation import comparison
from ibdrr_tf.evaluation.comparison_page import comparison_page

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="Chromium and its driver are not installed",
  ),
]

FLAGS = [
  *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
  *("--disable-quic", "--disable-background-networking", "--disable-sync"),
  *("--disable-component-update", "--window-size=1000,1400"),
]


class Browser:
  """A page in Chromium, driven by the WebDriver protocol."""

  def __init__(self, port, profile):
    self._address = f"http://127.0.0.1:{port}"
    options = {"args": [*FLAGS, f"--user-data-dir={profile}"]}
    wanted = {
      "goog:chromeOptions": options,
      "goog:loggingPrefs": {"browser": "ALL"},
    }
    deadline = time.monotonic() + 60
    while True:
      try:
        answer = self.ask("/session", capabilities={"alwaysMatch": wanted})
        break
      except ConnectionError:
        if time.monotonic() > deadline:
          raise
        time.sleep(0.1)
    self._address += f"/session/{answer['sessionId']}"

  def ask(self, path, **body):
    request = urllib.request.Request(
      self._address + path,
      json.dumps(body).encode(),
      {"Content-Type": "application/json"},
    )
    try:
      with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["value"]
    except urllib.error.URLError as error:
      if isinstance(error.reason, ConnectionError):
        raise error.reason from error
      raise

  def close(self):
    request = urllib.request.Request(self._address, method="DELETE")
    urllib.request.urlopen(request, timeout=60).close()

  def run(self, script):
    return self.ask("/execute/sync", script=script, args=[])

  def hover(self, script):
    """Moves the pointer to the middle of an element."""
    x, y = self.run(
      f"const e = {script}; e.scrollIntoView({{block: 'center'}});"
      "const b = e.getBoundingClientRect();"
      "return [b.x + b.width / 2, b.y + b.height / 2]"
    )
    move = {"type": "pointerMove", "duration": 0, "x": round(x), "y": round(y)}
    mouse = {"type": "pointer", "id": "m", "actions": [move]}
    self.ask("/actions", actions=[mouse])

  def tip(self):
    return self.run(
      "return [document.querySelector('#tip').hidden,"
      " document.querySelector('#tip').textContent]"
    )


@pytest.fixture
def server(tmp_path):
  """Serves the page, and keeps what else is asked for."""
  groups = comparison.over_seeds(RUNS)
  text = comparison_page(groups, comparison.rows(groups)).encode()
  asked = []

  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
      asked.append(self.path)
      self.send_response(200)
      self.send_header("Content-Type", "text/html; charset=utf-8")
      self.end_headers()
      self.wfile.write(text)

    def log_message(self, *arguments):
      pass

  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}/page", asked
    served.shutdown()


@pytest.fixture
def browser(tmp_path):
  with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
  driver = subprocess.Popen(
    ["chromedriver", f"--port={port}"],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  try:
    browser = Browser(port, tmp_path / "profile")
    yield browser
    browser.close()
  finally:
    driver.terminate()
    driver.wait()


def test_a_comparison_can_be_explored(browser, server):
  address, asked = server
  browser.ask("/url", url=address)
  # Curves: all values at the nearest number of classes.
  browser.hover("document.querySelector('svg.lines circle')")
  hidden, text = browser.tip()
  assert not hidden
  assert text.splitlines() == [
    "classes seen: 2",
    "90.00 %  finetune",
    "89.00 %  drr",
    "85.00 %  <i>mine",
  ]
  # Points: accuracy and bytes.
  browser.hover("document.querySelector('circle[data-tip^=drr]')")
  assert browser.tip() == [False, "drr: 75.00 ± 7.07 % with 2.000 MB"]
  # A box takes its run out of both charts and of the table.
  shown = (
    "return [...document.querySelectorAll('[data-run=drr]')]"
    ".filter(e => getComputedStyle(e).display !== 'none').length"
  )
  assert browser.run(shown) == 3
  browser.run("document.querySelector('input[value=drr]').click()")
  assert browser.run(shown) == 0
  browser.hover("document.querySelector('svg.lines circle')")
  assert "drr" not in browser.tip()[1]
  browser.run("document.querySelector('button[data-show=codes]').click()")
  assert browser.run(shown) == 3
  only = (
    "return [...document.querySelectorAll('input:checked')].map(b => b.value)"
  )
  assert browser.run(only) == ["drr"]
  browser.run("document.querySelector('button[data-show=all]').click()")
  assert browser.run(only) == ["drr", "<i>mine", "finetune"]
  # Nothing was fetched, and nothing was refused by the page's policy.
  assert set(asked) <= {"/page", "/favicon.ico"}
  errors = [
    entry["message"]
    for entry in browser.ask("/se/log", type="browser")
    if "favicon" not in entry["message"]
  ]
  assert errors == []


def test_nothing_is_wider_than_the_window(browser, server):
  browser.ask("/url", url=server[0])
  assert browser.run(
    "return document.documentElement.scrollWidth <= innerWidth"
  )
