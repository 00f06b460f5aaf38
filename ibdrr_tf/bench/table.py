"""Tables for people: rows under the columns of the longest one."""

__all__ = ["print_table"]


def print_table(title: str, table: dict[str, dict[str, float]]) -> None:
  """Prints a table.

  Args:
    title: above the names of the rows.
    table: rows by name; what a row lacks is a dash.
  """
  columns = list(max(table.values(), key=len))
  lines = [[title, *columns]]
  lines += [
    [name, *(_cell(row.get(column)) for column in columns)]
    for name, row in table.items()
  ]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  for name, *cells in lines:
    aligned = [cell.rjust(w) for cell, w in zip(cells, widths[1:], strict=True)]
    print("  ".join([name.ljust(widths[0]), *aligned]), flush=True)
  print()


def _cell(value: float | None) -> str:
  if value is None:
    return "–"
  if isinstance(value, int) or abs(value) >= 1000:
    return f"{value:,.0f}"
  # Seconds an image are small; three decimals would leave nothing of them.
  return f"{value:.3g}" if 0 < abs(value) < 0.1 else f"{value:.3f}"
