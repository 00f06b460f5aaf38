"use strict";
// Values where the pointer is, and runs that can be switched on and off.

const tip = document.getElementById("tip");

function show(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width < innerWidth ? x + 16 : x - 16 - box.width;
  const top = Math.min(y + 12, innerHeight - box.height - 4);
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

function hide() {
  tip.hidden = true;
}

// Bars, cells and points: what they say of themselves.
document.addEventListener("pointerover", (event) => {
  const target = event.target.closest("[data-tip]");
  if (target) show(target.dataset.tip, event.clientX, event.clientY);
});
document.addEventListener("pointerout", (event) => {
  if (event.target.closest("[data-tip]")) hide();
});
document.addEventListener("focusin", (event) => {
  const target = event.target.closest("[data-tip]");
  if (!target) return;
  const box = target.getBoundingClientRect();
  show(target.dataset.tip, box.right, box.bottom);
});
document.addEventListener("focusout", hide);

// Curves: all values at the nearest place of the x axis, the best first.
const most = 16;

function follow(chart, event) {
  const circles = [...chart.querySelectorAll(".run:not(.off) circle")];
  if (!circles.length) return;
  const box = chart.getBoundingClientRect();
  const scale = chart.viewBox.baseVal.width / box.width;
  const x = (event.clientX - box.left) * scale;
  const away = (circle) => Math.abs(circle.cx.baseVal.value - x);
  const nearest = circles.reduce((a, b) => (away(b) < away(a) ? b : a));
  const place = nearest.cx.baseVal.value;
  const rows = circles
    .filter((circle) => circle.dataset.x === nearest.dataset.x)
    .map((circle) => [circle.dataset.value, circle.parentNode.dataset.run])
    .sort((a, b) => b[0] - a[0]);
  const lines = rows
    .slice(0, most)
    .map(([value, name]) => `${value} %  ${name}`);
  if (rows.length > most) lines.push(`and ${rows.length - most} more`);
  const guide = chart.querySelector(".guide");
  guide.setAttribute("x1", place);
  guide.setAttribute("x2", place);
  guide.style.visibility = "visible";
  const title = `${chart.dataset.x}: ${nearest.dataset.x}`;
  show([title, ...lines].join("\n"), event.clientX, event.clientY);
}

for (const chart of document.querySelectorAll("svg.lines")) {
  chart.addEventListener("pointermove", (event) => follow(chart, event));
  chart.addEventListener("pointerleave", () => {
    chart.querySelector(".guide").style.visibility = "hidden";
    hide();
  });
}

// Boxes: one for each run, in all charts and tables of the page.
function ofRun(name) {
  return [...document.querySelectorAll("[data-run]")].filter(
    (element) => element.dataset.run === name);
}

function update(box) {
  for (const element of ofRun(box.value)) {
    element.classList.toggle("off", !box.checked);
  }
}

const boxes = [...document.querySelectorAll("input[name=run]")];
for (const box of boxes) {
  update(box);  // A browser may remember boxes from the last visit.
  box.addEventListener("change", () => update(box));
  const label = box.parentNode;
  label.addEventListener("pointerenter", () => {
    document.body.classList.add("picked");
    for (const element of ofRun(box.value)) element.classList.add("on");
  });
  label.addEventListener("pointerleave", () => {
    document.body.classList.remove("picked");
    for (const element of ofRun(box.value)) element.classList.remove("on");
  });
}
for (const button of document.querySelectorAll("button[data-show]")) {
  button.addEventListener("click", () => {
    for (const box of boxes) {
      const wanted = button.dataset.show;
      box.checked = wanted === "all" || box.dataset.family === wanted;
      update(box);
    }
  });
}
