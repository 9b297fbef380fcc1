"use strict";

// Sort a table by a column: numbers where cells have a value, text otherwise. Cells with an empty
// value have no number and come last in both directions.
for (const button of document.querySelectorAll(".sortable th button")) {
  button.addEventListener("click", () => {
    const heading = button.parentElement;
    const column = heading.cellIndex;
    const direction = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
    const body = heading.closest("table").tBodies[0];
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const missing = (row) => row.cells[column].dataset.value === "";
    const compare = (a, b) => {
      const difference = Number(a) - Number(b);
      return Number.isNaN(difference) ? a.localeCompare(b) : difference;
    };
    body.append(...[...body.rows].sort(
      (a, b) => missing(a) - missing(b) || direction * compare(key(a), key(b))));
  });
}

// The slider: all frames are precomputed; only paths and captions change.
const courses = JSON.parse(document.getElementById("courses").textContent);
for (const course of document.querySelectorAll(".course")) {
  const select = course.querySelector("select");
  const slider = course.querySelector("input");
  const show = (panel, drawn, frame) => {
    panel.querySelector("figcaption").textContent = frame.caption;
    for (const shape of ["wrong", "right", "location"]) {
      panel.querySelector(`path.${shape}`).setAttribute("d", frame[shape]);
    }
    panel.querySelector("path.level").setAttribute("d", drawn.level);
  };
  const label = (panel, drawn) => {
    const place = panel.querySelector(".ticks");
    const pattern = place.firstElementChild;
    place.replaceChildren(...drawn.ticks.map(([x, text]) => {
      const tick = pattern.cloneNode();
      tick.setAttribute("x", x);
      tick.textContent = text;
      return tick;
    }));
  };
  const drawn = () => courses[course.dataset.set][select.value];
  const now = course.querySelector(".now");
  slider.addEventListener("input", () => {
    const frame = drawn().frames[slider.value];
    show(now, drawn(), frame);
    slider.setAttribute("aria-valuetext", frame.caption);
  });
  select.addEventListener("change", () => {
    slider.max = drawn().frames.length - 1;
    slider.value = slider.max;
    for (const panel of course.querySelectorAll("figure")) label(panel, drawn());
    show(course.querySelector(".before"), drawn(), drawn().frames[0]);
    slider.dispatchEvent(new Event("input"));
  });
  course.querySelector(".controls").hidden = false;
}

// Figures are stored compressed.
for (const image of document.querySelectorAll("img[data-gzip]")) {
  const bytes = Uint8Array.from(atob(image.dataset.gzip), (letter) => letter.charCodeAt(0));
  const content = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  new Response(content).arrayBuffer().then((svg) => {
    image.src = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  });
}

// Light or dark: the system setting, until the button is used.
const theme = document.getElementById("theme");
const dark = () =>
  (document.documentElement.dataset.theme ??
    (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const name = () => { theme.textContent = dark() ? "Light" : "Dark"; };
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  name();
});
name();
theme.hidden = false;
