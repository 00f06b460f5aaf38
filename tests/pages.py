"""What tests of HTML pages share: a parser, and runs to compare."""

import html.parser


def make_run(method, accuracies, total, seed=0):
  phases = [
    {
      "classes_seen": 2 * (number + 1),
      "accuracy": accuracy,
      "train_seconds": 1.0,
      "memory": {
        "total": total,
        "images": 10,
        "codec_vqvae": 0,
        "codec_bitswap": 0,
        "other_models": 0,
        "images_and_decoders": total,
        "next_phase": total,
      },
    }
    for number, accuracy in enumerate(accuracies)
  ]
  later = accuracies[1:]
  return {
    "method": method,
    "dataset": "shapes",
    "backbone": {"name": "resnet8", "parameters": 12},
    "seed": seed,
    "phases": phases,
    "average_accuracy": sum(later) / len(later) if later else None,
    "average_accuracy_with_base": 50.0,
    "last_accuracy": accuracies[-1],
    "forgetting": 1.0,
    "base_drop": 1.0,
    "command": f"python -m ibdrr_tf.main --method={method} --seed={seed}",
  }


RUNS = {
  "drr": make_run("drr", [90.0, 80.0], 2_000_000),
  "drr-seed-1": make_run("drr", [88.0, 70.0], 2_000_000, seed=1),
  "finetune": make_run("finetune", [90.0, 20.0], 0),
  "<i>mine": make_run("raw_replay", [85.0, 60.0], 30_000_000),
}


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
