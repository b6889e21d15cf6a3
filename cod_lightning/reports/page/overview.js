// The upper half of the page: notes, the evaluation's curves and tables, training curves, settings that differ.

const KIND_DASHES = { trained: null, context: "2 4", warm_start: "7 4", reference: "10 3 2 3", other: "1 3" };

function drawOverview(data) {
  const several = data.runs.length > 1, lives = data.files.reduce((sum, file) => sum + file.lifecycles, 0);
  put(byId("head"), {}, [
    h("p", { class: "brand" }, "cod_lightning report"),
    h("h1", {}, data.runs.map((run, index) => h("span", { class: "run-name" }, several ? swatch(index) : null, run.name))),
    h("p", { class: "faint" }, several ? data.runs.map((run) => run.folder).join("  ·  ") : data.runs[0].folder),
    h("nav", { "aria-label": "Sections" }, [["evaluation", "Success by position"], ["training", "Training"], ["lifecycles", `Lifecycles (${lives.toLocaleString("en")})`]]
      .map(([id, text]) => h("a", { href: `#${id}` }, text))),
  ]);
  put(byId("foot"), {}, [h("p", { class: "faint" }, `Made by cod_lightning ${data.version}. This file is complete in itself; it loads no other.`)]);
  const notes = data.runs.flatMap((run) => run.notes.map((note) => h("li", {}, several ? h("b", {}, `${run.name}: `) : null, note)));
  if (notes.length) put(byId("notes"), {}, [h("div", { class: "note", role: "note" }, h("ul", {}, notes))]);
  drawEvaluation(byId("evaluation"), data.runs);
  drawTraining(byId("training"), data);
}

const swatch = (index) => h("span", { class: "swatch", "aria-hidden": "true", style: { background: runColour(index) } });

function drawEvaluation(section, runs) {
  const several = runs.length > 1, names = [...new Set(runs.flatMap((run) => Object.keys(run.suites)))];
  if (!names.length) put(section, {}, [h("p", { class: "empty" }, "No run has an evaluation.json that could be read.")]);
  for (const name of names) {
    const here = runs.map((run, index) => ({ run, index, suite: run.suites[name] })).filter((one) => one.suite);
    const lines = here.flatMap((one) => suiteLines(one, several));
    const picture = chart(lines, { title: "Success by position in the pack, with 95 % intervals", xLabel: "position", range: [0, 1], large: true });
    put(section, {}, [
      h("article", { class: "suite" },
        h("h3", {}, name, several ? null : h("span", { class: "faint" }, ` ${here[0].suite.title}`)),
        h("div", { class: several ? "suite-body several" : "suite-body" },
          h("div", { class: "suite-chart" }, several ? [picture, recoveryChart(here, several), legend(lines)] : [picture, legend(lines), recoveryChart(here, several)]),
          h("div", { class: "tables" }, here.map((one) => suiteTable(one, several))))),
    ]);
  }
}

// Of the warm start only its best temperature is drawn, with several runs only trained policies and their hidden contexts; the
// tables have all rows.
function suiteLines({ run, index, suite }, several) {
  const blanked = suite.rows.findIndex((row) => row.label === "blanked context");
  const best = (row) => row.kind !== "warm_start" || row.label.endsWith("*");
  const rows = suite.rows.filter((row, at) => (several ? row.kind === "trained" || at === blanked : best(row)));
  return rows.map((row, at) => ({
    label: several ? `${run.name}: ${row.label}` : row.label,
    x: row.success.map((_, position) => position), y: row.success, ci95: row.success_ci95, marks: true,
    colour: several ? runColour(index) : rowColour(row, at),
    dash: KIND_DASHES[row.kind], faint: several && row.kind !== "trained", strong: row.kind === "trained",
  }));
}

// Green is the trained policy's alone.
const OTHERS = [0, 1, 3, 4, 5, 7];
const rowColour = (row, at) => (row.kind === "trained" ? "var(--good)" : row.label === "blanked context" ? "var(--grey)" : runColour(OTHERS[(at - 1) % 6]));

// Success around the task at which the rule changes; with several runs of the trained policies alone.
function recoveryChart(here, several) {
  const lines = here.filter((one) => one.suite.recovery).flatMap(({ run, index, suite: { rows, recovery } }) =>
    recovery.rows.filter((row) => !several || row.kind === "trained").map((row) => ({
      ...row, label: several ? run.name : row.label, x: recovery.offsets, marks: true,
      colour: several ? runColour(index) : rowColour(row, rows.findIndex((other) => other.label === row.label)),
      dash: KIND_DASHES[row.kind], strong: row.kind === "trained",
    })));
  if (!lines.length) return null;
  const options = { xLabel: "tasks since the change", range: [0, 1], large: true, mark: { x: -0.5, label: "rule changes" } };
  const figure = chart(lines, { title: "Success around each pack's own change of the rule", ...options });
  return several ? figure : put(figure, {}, [legend(lines)]);
}

function suiteTable({ run, index, suite }, several) {
  const positions = suite.rows[0].success.map((_, position) => position);
  const cells = (row) => positions.map((at) => h("td", { title: counted(row.n[at], "lifecycle") }, h("b", {}, shown(row.success[at])), h("span", { class: "ci" }, interval(row.success_ci95[at]))));
  return h("div", { class: "suite-table" },
    several ? h("h4", {}, swatch(index), `${run.name}: ${suite.title}`) : null,
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Success by position" },
      h("table", {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "policy"), positions.map((at) => h("th", { scope: "col" }, at ? at : "position 0")), h("th", { scope: "col" }, "mean"), h("th", { scope: "col" }, "gain"))),
        h("tbody", {}, suite.rows.map((row) => h("tr", { class: `row-${row.kind}` }, h("th", { scope: "row" }, row.label), cells(row), h("td", {}, shown(row.mean)), h("td", {}, shown(row.gain === null ? null : Math.round(100 * row.gain) / 100, 2, true))))))),
    h("ul", { class: "sentences" }, suite.sentences.map((sentence, at) => h("li", { class: at === suite.sentences.length - 1 ? "faint" : at ? null : "finding" }, sentence))));
}

function drawTraining(section, data) {
  const several = data.runs.length > 1;
  if (!data.panels.length) put(section, {}, [h("p", { class: "empty" }, "No run has training curves.")]);
  else if (several) put(section, {}, [legend(data.runs.map((run, index) => ({ label: run.name, colour: runColour(index) })))]);
  const isZero = (panel) => panel.series.every((one) => one.y.every((value) => value === 0));
  const grid = (panels) => h("div", { class: "panels" }, panels.map((panel) => panelOf(panel, data.runs, several)));
  const zero = data.panels.filter(isZero);
  put(section, {}, [grid(data.panels.filter((panel) => !isZero(panel))), zero.length ? h("details", { class: "settings zero" },
    h("summary", {}, `Always 0 (${zero.length}): ${zero.map((panel) => panel.title).join(", ")}`), grid(zero)) : null, settings(data)]);
}

function panelOf(panel, runs, several) {
  const labels = [...new Set(panel.series.map((one) => one.label))];
  const dashes = [null, "7 3", "2 3", "9 3 2 3"];
  const lines = panel.series.map((one) => {
    const place = labels.indexOf(one.label), isPosition = one.label.startsWith("position");
    return {
      label: [several ? runs[one.run].name : "", one.label].filter(Boolean).join(": "), x: one.x, y: one.y,
      colour: several ? runColour(one.run) : isPosition ? positionColour(place, labels.length) : runColour(place),
      dash: several && labels.length > 1 ? dashes[place % 4] : null,
    };
  });
  const range = /^(Success|Contexts that parsed)/.test(panel.title) ? [0, 1] : null;
  const figure = chart(lines, { title: panel.title, xLabel: "step", range });
  if (labels.length > 1) figure.append(legend(several ? labels.map((label, at) => ({ label, colour: "var(--faint)", dash: dashes[at % 4] })) : lines));
  return figure;
}

function settings(data) {
  if (!data.config.length) return null;
  return h("details", { class: "settings" }, h("summary", {}, `Settings that differ (${data.config.length})`),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Settings that differ" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "key"), data.runs.map((run) => h("th", { scope: "col" }, run.name)))),
      h("tbody", {}, data.config.map(([key, values]) => h("tr", {}, h("th", { scope: "row" }, key), values.map((value) => h("td", {}, value))))))));
}
