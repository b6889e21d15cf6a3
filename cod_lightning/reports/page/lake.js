// A lake as a picture: ice, holes, start, goal, and the way that was walked with the number of each step.

const DIRECTION_SIGNS = { up: "↑", down: "↓", left: "←", right: "→" };

function lakePicture(lake, path, small) {
  const size = lake.rows.length, cell = 40, side = size * cell;
  const walked = path || [], last = walked[walked.length - 1];
  const end = last ? { G: "on the goal", H: "in a hole" }[lake.rows[last[0]][last[1]]] || "on the ice" : "";
  const label = `Lake of ${size} by ${size}; ${counted(Math.max(0, walked.length - 1), "step")} walked, ending ${end}.`;
  const picture = svg("svg", { viewBox: `-2 -2 ${side + 4} ${side + 4}`, class: small ? "lake small-lake" : "lake",
    role: small ? null : "img", "aria-label": small ? null : label, "aria-hidden": small ? "true" : null });
  lake.rows.forEach((row, r) => [...row].forEach((letter, c) => {
    const x = c * cell, y = r * cell;
    picture.append(svg("rect", { class: `cell cell-${letter}`, x: x + 1, y: y + 1, width: cell - 2, height: cell - 2, rx: 5 }));
    if (letter === "H") picture.append(svg("circle", { class: "hole", cx: x + 20, cy: y + 20, r: 12 }));
    if (letter === "G") picture.append(svg("path", { class: "flag", d: `M${x + 13} ${y + 33}V${y + 8}L${x + 30} ${y + 14}L${x + 13} ${y + 20}` }));
    if (letter === "S" && !small) picture.append(svg("text", { class: "start", x: x + 5, y: y + 36 }, "start"));
  }));
  if (last) picture.append(walkOf(walked, cell, end));
  return picture;
}

const ASIDE = [[0, 0], [11, -10], [-11, -10], [11, 10], [-11, 10], [0, -12], [0, 12], [12, 0]];

// A repeated visit to a cell is drawn beside the earlier one, so that no step hides another.
function walkOf(path, cell, end) {
  const group = svg("g", { class: end === "on the goal" ? "walk good" : end === "in a hole" ? "walk bad" : "walk" });
  const visits = new Map();
  const feet = path.map(([r, c]) => {
    const key = `${r},${c}`, visit = visits.get(key) || 0, [x, y] = ASIDE[visit % ASIDE.length];
    visits.set(key, visit + 1);
    return [c * cell + 20 + x, r * cell + 20 + y];
  });
  group.append(svg("path", { class: "way", d: `M${feet.map((foot) => foot.join(" ")).join("L")}` }));
  feet.forEach(([x, y], step) => {
    const isLast = step === path.length - 1;
    group.append(svg("circle", { class: isLast ? "foot last" : "foot", cx: x, cy: y, r: isLast ? 7.5 : 6 }));
    group.append(svg("text", { class: "step", x, y: y + 3.2, "text-anchor": "middle" }, step));
  });
  return group;
}

function lakeFacts(lake) {
  const meaning = lake.mapping.map((direction, index) =>
    h("li", {}, `${lake.noun} ${lake.names[index]} `, h("b", {}, `${DIRECTION_SIGNS[direction]} ${direction}`)));
  return h("div", { class: "mapping" }, h("p", { class: "faint" }, "Hidden from the policy:"), h("ul", {}, meaning));
}
