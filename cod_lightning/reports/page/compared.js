// Beside a suite's curves: regret to the oracle by position; below them: success around the task at which the rule changes.

function comparedCharts(here, several) {
  const charts = [recoveryChart(here, several), changeChart(here, several)].filter(Boolean);
  return charts.length ? h("div", { class: "compared" }, charts) : null;
}

const ownLine = ({ run, index }, several, more) => ({ label: several ? run.name : "trained", colour: several ? runColour(index) : "var(--good)", marks: true, ...more });

function regretChart(here, several) {
  const lines = here.filter((one) => one.suite.regret).map((one) => ownLine(one, several, { ...one.suite.regret, x: one.suite.regret.y.map((_, position) => position) }));
  const title = "Regret: reward of the oracle minus that of the trained policy, paired";
  return lines.length ? chart(lines, { title, xLabel: "position", range: [0, 0.1], large: true }) : null;
}

// With several runs only the trained policies are drawn; colours are those of the suite's own curves.
function recoveryChart(here, several) {
  const lines = here.filter((one) => one.suite.recovery).flatMap((one) => recoveryLines(one, several));
  const title = "Success around each pack's own change of the rule";
  const mark = { x: -0.5, label: "rule changes" };
  if (!lines.length) return null;
  const figure = chart(lines, { title, xLabel: "tasks since the change", range: [0, 1], large: true, mark });
  figure.append(legend(lines));
  return figure;
}

function recoveryLines(one, several) {
  const { rows, recovery } = one.suite, own = recovery.rows.filter((row) => row.kind === "trained");
  if (several) return own.map((row) => ownLine(one, several, { ...row, label: one.run.name, x: recovery.offsets }));
  const lines = recovery.rows.map((row) => [rows.findIndex((other) => other.label === row.label), row]).sort(([a], [b]) => a - b);
  return lines.map(([at, row]) => ({ ...row, x: recovery.offsets, marks: true, colour: rowColour(row, at), dash: KIND_DASHES[row.kind], strong: row.kind === "trained" }));
}

function changeChart(here, several) {
  const lines = here.filter((one) => one.suite.recovery).map((one) => ownLine(one, several, { ...one.suite.recovery.differences, x: [0, 1], bare: true }));
  const title = "What the change does to the trained policy's success, paired within packs";
  const names = [["first task after", "− last before"], ["last task of the pack", "− first after"]];
  return lines.length ? chart(lines, { title, xLabel: "", range: [-0.1, 0.1], large: true, names }) : null;
}
