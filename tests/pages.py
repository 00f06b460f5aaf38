"""What tests of HTML pages share: a parser that keeps every element."""

import html.parser


class Element:
  """An element, its attributes, the text in it, and where it is."""

  def __init__(self, name, attributes, parents):
    self.name, self.attributes, self.parents = name, dict(attributes), parents
    self.text = ""

  def __getitem__(self, attribute):
    return self.attributes[attribute]

  @property
  def classes(self):
    return self.attributes.get("class", "").split()


class Page(html.parser.HTMLParser):
  """All elements of a page, in order; refuses elements that do not match."""

  VOID = ("br", "img", "input", "meta")

  def __init__(self, text):
    super().__init__()
    self.elements, self._open = [], []
    self.feed(text)
    self.close()
    assert not self._open, "an element is not closed"

  def handle_starttag(self, tag, attrs):
    element = Element(tag, attrs, tuple(self._open))
    self.elements.append(element)
    if tag not in self.VOID:
      self._open.append(element)

  def handle_endtag(self, tag):
    assert self._open.pop().name == tag

  def handle_data(self, data):
    for element in self._open:
      element.text += data

  def find(self, name, /, *classes, **attributes):
    """Elements of a name that have all these classes and attributes."""
    return [
      element
      for element in self.elements
      if element.name == name
      and set(classes) <= set(element.classes)
      and attributes.items()
      <= {k.replace("-", "_"): v for k, v in element.attributes.items()}.items()
    ]
