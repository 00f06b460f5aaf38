"""One self-contained HTML file: style, script and pictures inside, no network.

Markup is made by `tag`, which escapes every text and every attribute. The
page's own policy (CSP) allows no connection, and no script or style but the two
that are in `page/`, by their hashes: a class name that held a script would be
shown, not run.
"""

import base64
import hashlib
import html
import io
import pathlib
from collections.abc import Iterable

import numpy as np
from PIL import Image

from ibdrr_tf.evaluation.chart_style import ALL_FAMILIES

__all__ = [
  "Markup",
  "join",
  "page",
  "picture",
  "section",
  "table",
  "tag",
]

_FOLDER = pathlib.Path(__file__).parent / "page"
_VOID = ("br", "img", "input", "meta")


class Markup(str):
  """Text that is HTML already."""

  __slots__ = ()


def tag(
  name: str, /, *children: str | None, **attributes: str | float | bool | None
) -> Markup:
  """An element of HTML or SVG.

  Args:
    name: of the element.
    *children: `Markup`, or text, which is escaped; None is left out.
    **attributes: a trailing underscore is dropped, others become hyphens; None
      and False are left out, True has no value.
  """
  parts = [name]
  for key, value in attributes.items():
    key = key.rstrip("_").replace("_", "-")
    if value is True:
      parts.append(key)
    elif value is not None and value is not False:
      text = f"{value:.6g}" if isinstance(value, float) else str(value)
      parts.append(f'{key}="{html.escape(text)}"')
  opening = f"<{' '.join(parts)}>"
  if name in _VOID:
    return Markup(opening)
  return Markup(f"{opening}{join(children)}</{name}>")


def join(children: Iterable[str | None]) -> Markup:
  """Several children one after the other; text is escaped."""
  return Markup(
    "".join(
      child if isinstance(child, Markup) else html.escape(child)
      for child in children
      if child is not None
    )
  )


def section(title: str, *children: str | None) -> Markup:
  """A part of the page, with its heading."""
  return tag("section", tag("h2", title), *children)


def table(head: list[str], rows: list[list[str]], caption: str = "") -> Markup:
  """A table whose first column names the rows.

  Args:
    head: headings.
    rows: cells; columns of words are set as text, others as figures.
    caption: above it; "" for none.
  """
  kinds = [
    "words" if any(row[k][:1].isalpha() for row in rows) else None
    for k in range(len(head))
  ]
  body = [
    tag(
      "tr",
      tag("th", row[0], scope="row"),
      *(
        tag("td", cell, class_=kind)
        for cell, kind in zip(row[1:], kinds[1:], strict=True)
      ),
    )
    for row in rows
  ]
  titles = (
    tag("th", cell, scope="col", class_=kind)
    for cell, kind in zip(head, kinds, strict=True)
  )
  return tag(
    "div",
    tag(
      "table",
      tag("caption", caption) if caption else None,
      tag("thead", tag("tr", *titles)),
      tag("tbody", *body),
    ),
    class_="wide",
  )


def picture(image: np.ndarray, text: str) -> Markup:
  """An image, uint8 [h, w, 3], as lossless WebP within the page.

  Args:
    image: its pixels.
    text: what is seen, for those who do not see it.
  """
  buffer = io.BytesIO()
  Image.fromarray(image).save(buffer, "WEBP", lossless=True, quality=100)
  data = base64.b64encode(buffer.getvalue()).decode()
  return tag("img", src=f"data:image/webp;base64,{data}", alt=text)


def page(title: str, *children: str | None) -> str:
  """The whole document.

  Args:
    title: its heading.
    *children: what follows it.
  """
  style = _colors() + _read("page.css")
  script = _read("page.js")
  policy = (
    f"default-src 'none'; img-src data:; style-src {_hash(style)}; "
    f"script-src {_hash(script)}"
  )
  head = tag(
    "head",
    tag("meta", charset="utf-8"),
    tag("meta", http_equiv="Content-Security-Policy", content=policy),
    tag("meta", name="viewport", content="width=device-width"),
    tag("title", title),
    tag("style", Markup(style)),
  )
  body = tag(
    "body",
    tag("main", tag("h1", title), *children),
    tag("div", id="tip", role="status", hidden=True),
    tag("script", Markup(script)),
  )
  return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _read(name: str) -> str:
  return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
  digest = hashlib.sha256(text.encode()).digest()
  return f"'sha256-{base64.b64encode(digest).decode()}'"


def _colors() -> str:
  """The families' colours, for a light and for a dark ground."""
  light, dark = (
    "".join(f"--{f.key}:{getattr(f, ground)};" for f in ALL_FAMILIES)
    for ground in ("light", "dark")
  )
  uses = "".join(f".{f.key}{{--own:var(--{f.key})}}\n" for f in ALL_FAMILIES)
  return (
    f":root{{{light}}}\n"
    f"@media (prefers-color-scheme: dark){{:root{{{dark}}}}}\n{uses}"
  )
