// One lifecycle as a picture to share: what was hidden, the reward by position, and the context that each task was solved with.

const STRIP = { column: 248, letters: 30, line: 16, most: 14, curve: 64 };

function wrapped(text, letters, most) {
  const lines = printed(text || "(empty)").split("\n").flatMap((line) => {
    const pieces = [];
    let rest = [...line];
    while (rest.length > letters) {
      const space = rest.lastIndexOf(" ", letters), end = space > letters / 2 ? space : letters;
      pieces.push(rest.slice(0, end).join(""));
      rest = rest.slice(rest[end] === " " ? end + 1 : end);
    }
    return [...pieces, rest.join("")];
  });
  return lines.length > most ? [...lines.slice(0, most - 1), `… ${counted(lines.length - most + 1, "line")} more`] : lines;
}

const inLines = (lines, x, y, attributes) => lines.map((line, at) => svg("text", { x, y: y + at * STRIP.line, "xml:space": "preserve", ...attributes }, line));

// The picture as a file of its own, in the colours of the page.
function stripOf(life, pack, facts, text) {
  const solves = life.episodes.filter((one) => one.kind === "solve"), lake = pack.tasks[0] && pack.tasks[0].lake;
  const width = Math.max(2, solves.length) * STRIP.column + 24, left = (at) => 24 + at * STRIP.column;
  const secret = lake ? lake.mapping.map((direction, index) => `${lake.noun} ${lake.names[index]} ${DIRECTION_SIGNS[direction]} ${direction}`).join(", ") : pack.tasks[0] ? pack.tasks[0].spec : "";
  const told = wrapped(`${lake ? "Hidden from the policy" : "First task; the policy does not see all of it"}: ${secret}`, Math.floor(width / 7.9), 5);
  const contexts = solves.map((one) => wrapped(text(one.context_before), STRIP.letters, STRIP.most));
  const top = 68 + told.length * STRIP.line, below = top + STRIP.curve + 34, hasLake = solves.some((one) => one.path && pack.tasks[one.position] && pack.tasks[one.position].lake);
  const words = below + (hasLake ? 178 : 0), height = words + 40 + Math.max(...contexts.map((lines) => lines.length), 1) * STRIP.line;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "strip" },
    svg("rect", { class: "strip-paper", width, height }),
    svg("text", { class: "strip-title", x: 24, y: 30 }, pack.id), svg("text", { x: 24, y: 48 }, facts),
    inLines(told, 24, 70, {}));
  const rewards = solves.map((one) => one.reward), lowest = Math.min(0, ...rewards.filter((one) => one !== null)), highest = Math.max(1, ...rewards);
  const height_of = (reward) => top + 16 + STRIP.curve * (1 - (reward - lowest) / (highest - lowest));
  const middle = (at) => left(at) + STRIP.column / 2 - 12;
  for (const value of [lowest, highest]) picture.append(svg("line", { class: "rule", x1: 24, x2: width - 24, y1: height_of(value), y2: height_of(value) }), svg("text", { x: 4, y: height_of(value) + 4 }, axisNumber(value, highest - lowest)));
  const known = solves.map((one, at) => [one, at]).filter(([one]) => one.reward !== null);
  if (known.length) picture.append(svg("path", { class: "stroke strip-curve", d: `M${known.map(([one, at]) => `${middle(at)} ${height_of(one.reward)}`).join("L")}` }));
  for (const [one, at] of known) picture.append(svg("circle", { class: `strip-dot ${outcomeOf(one)}`, cx: middle(at), cy: height_of(one.reward), r: 5 }));
  solves.forEach((one, at) => {
    const drawn = one.path && pack.tasks[one.position] && pack.tasks[one.position].lake, x = left(at);
    picture.append(svg("text", { class: `strip-task ${outcomeOf(one)}`, x, y: below }, `${SIGNS[outcomeOf(one)]} task ${one.position}: ${OUTCOMES[outcomeOf(one)]}`));
    if (drawn) put(picture, {}, [put(lakePicture(drawn, one.path, false), { x, y: below + 12, width: 150, height: 150 }, [])]);
    put(picture, {}, [svg("text", { x, y: words + 22 }, "context"), inLines(contexts[at], x, words + 40, { class: "strip-context" })]);
  });
  return picture;
}
