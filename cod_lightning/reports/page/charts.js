// Line charts: a frame, lines with optional intervals, and a readout that follows the pointer or the arrow keys.

const RIGHT = 12, TOP = 10, BOTTOM = 34;

const runColour = (index) => `var(--c${index % 8})`;

// From violet over blue and green to amber, in as many steps as there are positions.
function positionColour(index, count) {
  const share = count > 1 ? index / (count - 1) : 1;
  return `hsl(${Math.round(270 - 235 * share)} 62% var(--ramp))`;
}

function ticks(low, high, whole) {
  const rough = (high - low) / 4 || 1, power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999) || rough;
  if (whole) step = Math.max(1, Math.round(step));
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-6; at++) found.push(at * step);
  return found;
}

function extent(values, fixed) {
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (fixed) {
    const beyond = (high - low) * 0.06;
    return [low < fixed[0] ? low - beyond : fixed[0], high > fixed[1] ? high + beyond : fixed[1]];
  }
  if (low > 0 && low < 0.6 * high) low = 0;
  if (low === high) [low, high] = low === 0 ? [0, 1] : [Math.min(0, 2 * low), Math.max(0, 2 * low)];
  const room = (high - low) * 0.05;
  return [low === 0 ? 0 : low - room, high + room];
}

// `lines`: {label, x, y, ci95, n, colour, dash, marks, faint, strong}; the first lies on top. Options: title, xLabel, range, large (marks
// side by side at whole x), mark ({x, label}, a line from top to bottom).
function chart(lines, { title, xLabel, range, large, mark }) {
  const [WIDE, HIGH] = large ? [540, 310] : [330, 200];
  const drawn = lines.filter((line) => line.y.some((y) => y !== null));
  const allX = drawn.flatMap((line) => line.x);
  const bounds = drawn.flatMap((line) => (line.ci95 || []).filter(Boolean).flat());
  const allY = drawn.flatMap((line) => line.y.filter((y) => y !== null)).concat(bounds);
  const caption = h("figcaption", {}, title), figure = h("figure", { class: "chart" }, caption);
  if (!allY.length) return put(figure, {}, [h("p", { class: "faint" }, "no numbers")]);
  let [x0, x1] = [Math.min(...allX), Math.max(...allX)];
  if (x0 === x1) [x0, x1] = [x0 - 0.5, x1 + 0.5];
  const [y0, y1] = extent(allY, range), margin = large ? 18 : 0;
  const labels = ticks(y0, y1).map((y) => [y, axisNumber(y, y1 - y0)]);
  const LEFT = Math.max(46, 14 + (large ? 10 : 7) * Math.max(...labels.map(([, text]) => text.length)));
  const px = (x) => LEFT + margin + ((x - x0) / (x1 - x0)) * (WIDE - LEFT - RIGHT - 2 * margin);
  const py = (y) => HIGH - BOTTOM - ((y - y0) / (y1 - y0)) * (HIGH - TOP - BOTTOM);
  const label = `${title}: ${drawn.map((line) => line.label).filter(Boolean).join("; ")}. Arrow keys read the values.`;
  const picture = svg("svg", { class: large ? "large" : null, viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": label, tabindex: 0 });
  for (const [y, text] of labels) {
    picture.append(svg("line", { class: y === 0 && y0 < 0 ? "rule zero" : "rule", x1: LEFT, x2: WIDE - RIGHT, y1: py(y), y2: py(y) }));
    picture.append(svg("text", { x: LEFT - 7, y: py(y) + 4, "text-anchor": "end" }, text));
  }
  for (const x of ticks(x0, x1, true).filter((one) => one >= x0 && one <= x1))
    picture.append(svg("text", { x: px(x), y: HIGH - BOTTOM + 17, "text-anchor": "middle" }, axisNumber(x, x1 - x0)));
  if (mark) {
    picture.append(svg("line", { class: "mark", x1: px(mark.x), x2: px(mark.x), y1: TOP, y2: HIGH - BOTTOM }));
    picture.append(svg("text", { x: px(mark.x) + 5, y: HIGH - BOTTOM - 6 }, mark.label));
  }
  picture.append(svg("text", { class: "axis", x: (LEFT + WIDE) / 2, y: HIGH - 2, "text-anchor": "middle" }, xLabel));
  const cursor = svg("line", { class: "cursor", y1: TOP, y2: HIGH - BOTTOM, x1: -9, x2: -9 });
  picture.append(cursor);
  const aside = large ? Math.min(3.5, 26 / drawn.length, (0.8 * (px(1) - px(0))) / drawn.length) : 0;
  drawn.map((line, index) => lineOf(line, px, py, (index - (drawn.length - 1) / 2) * aside)).reverse().forEach((line) => picture.append(line));
  const readout = h("p", { class: "readout", "aria-live": "polite" });
  readAlong(picture, cursor, readout, drawn, px, WIDE, xLabel);
  put(caption, {}, [" ", savedAs(title, "svg", () => pictureOf(title, picture, drawn, WIDE, HIGH))]);
  return put(figure, {}, [picture, readout]);
}

// A chart by itself: its title above, the names of its lines below.
function pictureOf(title, picture, lines, wide, high) {
  const named = lines.filter((line) => line.label), height = high + 40 + 16 * named.length;
  const names = named.map((line, at) => svg("text", { x: 46, y: high + 44 + 16 * at, style: { fill: line.colour } }, line.label));
  return svg("svg", { class: "chart", viewBox: `0 0 ${wide} ${height}`, width: wide, height }, svg("rect", { class: "paper", width: wide, height }),
    svg("text", { x: 14, y: 18 }, title), svg("g", { transform: "translate(0 24)" }, [...picture.cloneNode(true).children]), names);
}

function axisNumber(value, span) {
  if (value === 0) return "0";
  if (span < 0.001 && Math.abs(value) < 10 * span) return value.toExponential(1).replace(".0e", "e").replaceAll("-", "−");
  const unit = Math.abs(value) < 10000 ? 1 : 1000, digits = Math.max(1, 2 - Math.floor(Math.log10(span / unit)));
  return `${+(value / unit).toFixed(digits)}${unit > 1 ? "k" : ""}`.replace("-", "−");
}

function lineOf(line, px, py, shift) {
  const group = svg("g", { class: line.faint ? "line faint-line" : line.strong ? "line strong-line" : "line", style: { color: line.colour } });
  let path = "", pen = "M";
  line.y.forEach((y, index) => {
    if (y === null) { pen = "M"; return; }
    const x = px(line.x[index]) + shift, bounds = line.ci95 && line.ci95[index];
    path += `${pen}${x.toFixed(1)} ${py(y).toFixed(1)}`;
    pen = "L";
    if (bounds) group.append(svg("path", { class: "whisker", d: `M${x - 3} ${py(bounds[0])}h6M${x} ${py(bounds[0])}V${py(bounds[1])}M${x - 3} ${py(bounds[1])}h6` }));
    if (line.marks || line.y.length <= 8) group.append(svg("circle", { cx: x, cy: py(y), r: line.marks ? 3.6 : 2.6 }));
  });
  group.prepend(svg("path", { class: "stroke", d: path, "stroke-dasharray": line.dash || null }));
  return group;
}

function readAlong(picture, cursor, readout, lines, px, wide, xLabel) {
  const stops = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  let at = -1;
  const show = (index) => {
    at = Math.max(0, Math.min(stops.length - 1, index));
    const x = stops[at];
    cursor.setAttribute("x1", px(x));
    cursor.setAttribute("x2", px(x));
    const values = lines.map((line) => {
      const place = line.x.indexOf(x);
      if (place < 0 || line.y[place] === null) return null;
      const bounds = line.ci95 ? ` ${interval(line.ci95[place])}` : "";
      const packs = line.n ? `, ${counted(line.n[place], "pack")}` : "";
      return h("span", { style: { color: line.colour } }, `${line.label} ${shown(line.y[place], 3)}${bounds}${packs}`);
    });
    refill(readout, h("b", {}, `${xLabel} ${x}`), values.filter(Boolean));
  };
  const clear = () => { at = -1; cursor.setAttribute("x1", -9); cursor.setAttribute("x2", -9); readout.replaceChildren(); };
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * wide;
    let best = 0;
    stops.forEach((stop, index) => { if (Math.abs(px(stop) - x) < Math.abs(px(stops[best]) - x)) best = index; });
    show(best);
  });
  picture.addEventListener("pointerleave", clear);
  picture.addEventListener("blur", clear);
  picture.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Escape") clear();
    if (!move) return;
    event.preventDefault();
    show(at < 0 ? (move > 0 ? 0 : stops.length - 1) : at + move);
  });
}

function legend(entries) {
  const sample = (entry) => svg("svg", { viewBox: "0 0 26 10", class: "sample", "aria-hidden": "true", style: { color: entry.colour } },
    svg("path", { class: "stroke", d: "M1 5H25", "stroke-dasharray": entry.dash || null }));
  return h("ul", { class: "legend" }, entries.map((entry) => h("li", {}, sample(entry), entry.label)));
}
