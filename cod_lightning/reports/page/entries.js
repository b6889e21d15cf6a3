// What the context carried: a row for each entry, a column for each episode.

const LETTERS = 60;

const nameOf = (one) => `${one.kind} ${one.position}`;

function carriedView(life, text, choose) {
  if (!life.entries.length) return null;
  const goTo = (index) => h("button", { type: "button", onclick: () => choose(index) }, nameOf(life.episodes[index]));
  const rows = life.entries.map((one) => ({ ...one, key: text(one.key), text: text(one.text), why: text(one.why) }));
  const head = h("tr", {}, h("th", { scope: "col" }, "entry"), life.episodes.map((one, index) => h("th", { scope: "col", "data-episode": index, title: nameOf(one) }, one.kind === "solve" ? one.position : "")),
    h("th", { scope: "col", title: "Mean reward of the tasks that were shown the entry, and how many they are" }, "earned"), h("th", { scope: "col", class: "fate" }, "what became of it"));
  const fate = (one) => [one.came < 0 ? "there from the start" : ["from ", goTo(one.came)],
    one.changes.length ? ["; changed by ", one.changes.flatMap(([index], at) => [at ? ", " : "", goTo(index)])] : null,
    one.gone === null ? null : ["; gone after ", goTo(one.gone), one.why ? `: ${one.why}` : ""]];
  const row = (one) => h("tr", {}, h("th", { scope: "row", title: `${one.key}\n${one.text}` }, label(one.key, one.text)),
    life.episodes.map((episode, index) => cell(one, episode, index, text)),
    h("td", {}, one.num_tasks ? [h("b", {}, shown(one.earned)), ` in ${one.num_tasks}`] : "\u2013"), h("td", { class: "fate" }, fate(one)));
  return h("details", { class: "carried", open: true }, h("summary", {}, "What the context carried"),
    h("div", { class: "scroll" }, h("table", {}, h("thead", {}, head), h("tbody", {}, rows.map(row)))),
    h("p", { class: "faint" }, "+ came, ~ changed, \u00d7 gone; a line: kept; a square: shown to the task or chosen by it (full: solved, hollow: not).",
      life.more_entries ? ` ${counted(life.more_entries, "entry").replace("entrys", "entries")} more.` : ""));
}

function label(key, said) {
  const line = said.split(/\s+/).join(" "), cut = line.length > LETTERS ? `${line.slice(0, LETTERS)}\u2026` : line;
  return key === said || !cut ? cut || key : [h("span", { class: "faint" }, `${key} `), cut];
}

// One entry in one episode.
function cell(entry, episode, index, text) {
  const change = entry.changes.find(([at]) => at === index), what = [];
  if (entry.shown.includes(index)) what.push(["", "shown", `shown to this task: ${OUTCOMES[outcomeOf(episode)]}, reward ${shown(episode.reward)}`]);
  if (entry.came === index) what.push(["+", "came", "came"]);
  if (change) what.push(["~", "changed", `changed; before: ${text(change[1])}`]);
  if (entry.gone === index) what.push(["\u00d7", "gone", `gone${entry.why ? `: ${entry.why}` : ""}`]);
  const isKept = entry.came < index && (entry.gone === null || index < entry.gone);
  const marks = what.map(([sign, kind]) => (kind === "shown" ? h("span", { class: "dots" }, h("i", { class: outcomeOf(episode) })) : h("span", { class: kind, "aria-hidden": "true" }, sign)));
  return h("td", { "data-episode": index, class: isKept && !change ? "kept" : null, title: what.length ? `${nameOf(episode)}: ${what.map(([, , said]) => said).join("; ")}` : null },
    marks, h("span", { class: "unseen" }, what.map(([, , said]) => said).join("; ") || (isKept ? "kept" : "")));
}

function markEpisode(view, chosen) {
  view.querySelectorAll("[data-episode]").forEach((one) => one.classList.toggle("chosen", Number(one.dataset.episode) === chosen));
}
