"use strict";
// The browser of lifecycles: a list with filters, beside it one lifecycle with its episodes; and the values of charts under the
// pointer. All texts were made visible when the page was written, and become text nodes and attributes, never markup.

const byId = (id) => document.getElementById(id);

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, one]) => element.style.setProperty(key, one));
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const [p, span, div] = ["p", "span", "div"].map((tag) => (name, ...children) => h(tag, { class: name }, ...children));

// One of several things to choose from, by pointer or arrow keys: a radio button that its label stands for.
function choice(group, value, isChosen, choose, attributes, ...children) {
  const onchange = () => {
    choose(value);
    document.querySelector(`input[name=${group}]:checked`).focus(); // what was chosen may have been drawn anew
  };
  return h("label", attributes, h("input", { type: "radio", name: group, value, checked: isChosen, onchange }), children);
}

const NUMBER = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const shown = (value) => (value === null ? "–" : NUMBER.format(value));
const counted = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

// ---- charts: a legend has the last values, and while the pointer is on the chart those nearest to it

for (const picture of document.querySelectorAll(".chart svg[data-x]")) {
  const [left, right, first, last] = picture.dataset.x.split(" ").map(Number);
  const lines = [...picture.parentElement.querySelectorAll("b")].map((value) => [value, JSON.parse(value.dataset.points)]);
  const read = (x) => lines.forEach(([value, points]) => {
    const [step, y] = points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
    value.textContent = x < last ? `${shown(y)} at ${step}` : shown(y);
  });
  picture.addEventListener("pointerleave", () => read(last));
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect(), place = ((event.clientX - box.left) / box.width) * picture.viewBox.baseVal.width;
    read(first + ((place - left) / (right - left)) * (last - first));
  });
  read(last);
}

// ---- words for episodes

const OUTCOMES = { solved: ["✓", "solved"], unsolved: ["✗", "not solved"], noted: ["✎", "context written"], garbled: ["!", "context not parsed"],
  refused: ["!", "not what was asked for"], written: ["✎", "written as asked for"], missing: ["·", "no reward"] };
const OUTCOMES_OF = { solve: ["unsolved", "solved"], update: ["garbled", "noted"], write: ["refused", "written"] };
const MOST_DOTS = 16;

const outcomeOf = (episode) => (episode.success === null ? "missing" : OUTCOMES_OF[episode.kind][Number(episode.success)]);
const said = (episode) => OUTCOMES[outcomeOf(episode)][1];
const nameOf = (episode) => `${episode.kind} ${episode.position}`;
const dot = (episode) => h("i", { class: outcomeOf(episode), title: said(episode), role: "img", "aria-label": said(episode) });

// A dot for each task; of a long pack how many were solved.
function dots(life) {
  const solves = life.episodes.filter((one) => one.kind === "solve");
  const isLong = solves.length > MOST_DOTS;
  return span("dots", isLong ? `${solves.filter((one) => one.success).length} of ${solves.length} solved` : solves.map(dot));
}

// ---- tokens: what colours them, and what the colours mean; log-probs and gaps are in nats

const WIDEST_GAP = 0.2, LOWEST_LOGPROB = -3;
const mixed = (variable, share) => `color-mix(in srgb, var(${variable}) ${Math.round(Math.min(1, Math.abs(share)) * 70)}%, transparent)`;

const COLOURINGS = {
  logprob: {
    label: "log-prob",
    colour: (turn, at) => mixed("--doubt", turn.logprobs[at] / LOWEST_LOGPROB),
    note: () => `Log-probs under the sampler. Deep orange: in doubt, ${LOWEST_LOGPROB} nats and below; none: sure.`,
  },
  advantage: {
    label: "advantage",
    colour: (turn, at, one, strongest) => mixed(one.advantage < 0 ? "--bad" : "--good", one.advantage / strongest),
    note: (one, strongest) => `Green: better than its siblings, red: worse, at most ±${shown(strongest)}. As the update had it, for all tokens.`,
  },
  gap: {
    label: "log-prob gap",
    colour: (turn, at) => mixed(turn.gaps[at] < 0 ? "--c1" : "--c0", turn.gaps[at] / WIDEST_GAP),
    note: ({ updates }) => `Blue: likelier, orange: less likely, deepest at ±${WIDEST_GAP}. Policy minus sampler, in nats. ` +
      (updates ? `The policy had moved by ${counted(updates, "update")} since it sampled: that drift is in the gap, too.`
        : "No update lies between the two, so this is how far engine and training forward disagree."),
  },
};

function tokenTitle({ logprobs, gaps }, at) {
  const factor = (nats) => shown(nats === null ? null : Math.exp(nats)); // a damaged file has numbers that are none
  const sampled = `token ${at}: log-prob ${shown(logprobs[at])}, probability ${factor(logprobs[at])}`;
  return at in gaps ? `${sampled}; in the update gap ${shown(gaps[at])}, ratio ${factor(gaps[at])}` : sampled;
}

// The response with its words coloured where each is a token, as their numbers say; else the response, and a stroke for each token.
function responseView(response, turn, colour) {
  const words = response.match(/\s+|\S+/g) || [], isStopped = turn.stop === "stop", number = turn.logprobs.length;
  const token = (at, ...text) => h("span", { class: "token", title: tokenTitle(turn, at), style: colour ? { background: colour(turn, at) } : {} }, text);
  if (!number) return p("said response", response);
  if (words.filter((word) => word.trim()).length !== number - isStopped)
    return [p("said response", response), p("strokes", turn.logprobs.map((_, at) => token(at))),
      p("faint", `${counted(number, "token")}, a stroke for each`)];
  let at = 0;
  return p("said response", words.map((word) => (word.trim() ? token(at++, word) : word)), isStopped ? [" ", token(at, "■")] : null);
}

// ---- contexts, entry by entry

let data; // what the page holds, once it is read
const text = (number) => data.strings[number];
const block = (title, ...children) => h("section", { class: "block" }, h("h4", {}, title), children);
const CHANGES = { kept: [" ", "span"], removed: ["−", "del"], added: ["+", "ins"] };

// The entries of a context before and after an update.
function entriesView(changes) {
  const entry = ([kind, number]) => h("li", { title: kind }, span("sign", CHANGES[kind][0]), h(CHANGES[kind][1], {}, text(number)));
  return changes.length ? h("ul", { class: "context entries" }, changes.map(entry)) : p("context", h("em", {}, "(empty)"));
}

// What the context carried: a row for each entry, a column for each episode.
function carriedView(life, chosen) {
  const { entries, more_entries: more } = life;
  if (!entries.length) return null;
  const at = (index) => nameOf(life.episodes[index]), column = (index) => ({ class: index === chosen ? "chosen" : null });
  const fate = (one) => [one.came < 0 ? "there from the start" : `from ${at(one.came)}`,
    one.changes.length && `changed by ${one.changes.map(([index]) => at(index)).join(", ")}`,
    one.gone !== null && `gone after ${at(one.gone)}${one.why ? `: ${text(one.why)}` : ""}`].filter(Boolean).join("; ");
  const cell = (one, episode, index) => {
    const change = one.changes.find(([place]) => place === index), isLive = one.came < index && (one.gone === null || index < one.gone);
    const signs = (one.came === index ? "+" : "") + (change ? "~" : "") + (one.gone === index ? "×" : ""), isShown = one.shown.includes(index);
    return h("td", { ...column(index), title: change ? `before: ${text(change[1])}` : null },
      isShown && span("dots", dot(episode)), signs || (isLive && !isShown && "–"));
  };
  const name = (one) => (one.key === one.text ? text(one.text) : [span("faint", text(one.key)), " ", text(one.text)]);
  const row = (one) => h("tr", {}, h("th", { scope: "row", title: text(one.text) }, name(one)), life.episodes.map((episode, index) => cell(one, episode, index)),
    h("td", {}, one.num_tasks ? `${shown(one.earned)} in ${one.num_tasks}` : "–"), h("td", { class: "fate" }, fate(one)));
  const head = (words, title, of) => h("th", { scope: "col", title, ...of }, words);
  const heads = [head("entry"), life.episodes.map((one, index) => head(one.kind === "solve" ? one.position : "", nameOf(one), column(index))),
    head("earned", "Mean reward of the tasks that were shown the entry, and how many they are"), head("what became of it")];
  return block("What the context carried",
    div("scroll carried", h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, entries.map(row)))),
    p("faint", "+ came, ~ changed, × gone, – kept; a square: shown to the task or chosen by it (full: solved, hollow: not).", more ? ` ${more} more.` : ""));
}

// ---- one lifecycle

const WHY_FEEDBACK = { solve: "Feedback of the environment", true: "What was refused, and why", false: "Why the context did not parse" };
const CUT = { length: "cut off: the response was as long as it may be", window: "cut off: the window was full" };
let colouring = "logprob";

// Where a lifecycle comes from, in words.
const originOf = ({ file, step }) =>
  [data.runs.length > 1 && data.runs[data.files[file].run], data.files[file].label, `step ${step}`].filter(Boolean).join(" · ");

function show(number, index) {
  const { files, packs, lifecycles } = data, life = lifecycles[number], one = life.episodes[index];
  const file = files[life.file], pack = packs[life.group], row = byId("list").querySelector(`input[value="${number}"]`);
  if (row) row.checked = true;
  const siblings = lifecycles.map((other, place) => [other, place]).filter(([other]) => other.group === life.group);
  const strongest = Math.max(1e-9, ...siblings.flatMap(([other]) => other.episodes.map((e) => Math.abs(e.advantage || 0))));
  // It names the pack and not a number, which the next report may give to another.
  const address = new URLSearchParams({ pack: pack.id, sibling: life.sibling, step: life.step, file: file.label, episode: index });
  const sibling = ([other, place]) => choice("sibling", place, place === number, () => show(place, 0), { class: "pick" }, `${other.sibling} `, dots(other));
  const parts = [
    h("header", {}, h("h3", {}, pack.id), p("faint", `${originOf(life)} · ${pack.split} split · sibling ${life.sibling} · `,
      h("a", { href: `#${address}`, title: "The address of this episode in this report" }, "link"))),
    siblings.length > 1 && div("siblings", span("faint", "siblings"), siblings.map(sibling)),
    carriedView(life, index),
    div("timeline", life.episodes.map((other, at) => tab(other, at, at === index, strongest, () => show(number, at)))),
    one && h("div", { id: "episode" }, facts(one),
      one.changes ? block("What the update changed in the context", entriesView(one.changes)) : start(life, one, pack),
      turns(one, strongest, () => show(number, index)),
      one.feedback ? block(WHY_FEEDBACK[one.kind] || WHY_FEEDBACK[one.success], p("said", text(one.feedback))) : null,
      one.error ? block("Error", p("said error", text(one.error))) : null),
  ];
  byId("details").replaceChildren(...parts.filter(Boolean));
}

function tab(one, at, isChosen, strongest, choose) {
  const [sign, words] = OUTCOMES[outcomeOf(one)];
  const reward = `reward ${shown(one.reward)}${one.status === "completed" ? "" : `, ${one.status}`}`;
  const attributes = { class: `episode pick ${outcomeOf(one)} ${one.kind}`, title: `${nameOf(one)}: ${words}, ${one.status}` };
  return choice("episode", at, isChosen, choose, attributes, span("what", sign, " ", nameOf(one)), span("faint", reward),
    one.advantage !== null && h("span", { style: { background: COLOURINGS.advantage.colour(null, 0, one, strongest) } }, `adv. ${shown(one.advantage)}`));
}

function facts(one) {
  const parts = Object.entries(one.parts).map(([name, value]) => `${name} ${shown(value)}`).join(", ");
  const version = one.turns.length ? one.turns[0].policy_version : -1, tokens = one.turns.reduce((sum, turn) => sum + turn.logprobs.length, 0);
  return p("facts", [said(one), one.status, `reward ${shown(one.reward)}${parts && ` (${parts})`}`, `advantage ${shown(one.advantage)}`,
    counted(one.turns.length, "turn"), counted(tokens, "token"), `policy version ${version < 0 ? "–" : version}`].join(" · "));
}

function start(life, one, pack) {
  const context = p("context", text(one.context_before) || h("em", {}, "(empty)"));
  if (one.kind !== "solve") return block("Context it was written with", context);
  const note = "The pack's own task in full; the policy does not see all of it, and a proposal may have put another in its place.";
  return div("columns", block("The task", p("faint", note), p("context", text(pack.tasks[one.position]))), block("Context it was solved with", context));
}

function turns(one, strongest, redraw) {
  if (!one.turns.length) return p("empty", "No turns: the episode did not begin.");
  const isSampled = one.turns.some((turn) => turn.logprobs.some(Boolean)); // an endpoint's log-probs are all 0
  const offered = [isSampled && "logprob", ...(one.advantage === null ? [] : ["advantage", "gap"])].filter(Boolean);
  const chosen = offered.includes(colouring) ? colouring : offered[0], { colour, note } = COLOURINGS[chosen] || {};
  const radio = (value) => choice("colouring", value, value === chosen, () => { colouring = value; redraw(); }, {}, COLOURINGS[value].label);
  const turn = (of) => h("li", {}, p("faint", one.kind === "solve" ? "world" : "asked"), p("said", text(of.observation)), p("faint", "policy"),
    responseView(text(of.response), chosen ? of : { ...of, logprobs: [] }, chosen && ((...token) => colour(...token, one, strongest))),
    of.stop === "stop" ? null : p("faint", CUT[of.stop]));
  return block("Turns", offered.length > 1 && h("fieldset", { class: "colouring" }, h("legend", {}, "colour tokens by"), offered.map(radio)),
    p("faint scale", chosen ? note(one, strongest) : "No log-probs: played greedily, by a script, or by a model elsewhere."),
    h("ol", { class: "turns" }, one.turns.map(turn)));
}

// ---- the list

function makeFilters() {
  const { runs, files, lifecycles } = data, episodes = lifecycles.flatMap((one) => one.episodes);
  const of = (values) => [...new Set(values)].sort((a, b) => (a > b ? 1 : -1)).map((one) => [one, one]);
  const options = {
    ...(runs.length > 1 && { run: runs.map((name, index) => [index, name]) }),
    file: files.map((file, index) => [index, `${runs.length > 1 ? `${runs[file.run]}: ` : ""}${file.label} (${file.shown})`]),
    step: of(lifecycles.map((one) => one.step)), position: of(episodes.map((one) => one.position)),
    outcome: Object.entries(OUTCOMES).map(([name, [, words]]) => [name, words]), status: of(episodes.map((one) => one.status)),
  };
  const option = ([value, words]) => h("option", { value }, words);
  const select = ([name, of]) => h("label", {}, name, h("select", { name }, [["", "any"], ...of].map(option)));
  let timer;
  byId("filters").append(h("input", { type: "search", name: "words", placeholder: "search in all texts", "aria-label": "Search in all texts" }),
    ...Object.entries(options).map(select), h("button", { type: "reset" }, "Clear"));
  byId("filters").addEventListener("input", ({ target }) => { clearTimeout(timer); timer = setTimeout(filter, target.type === "search" ? 120 : 0); });
  byId("filters").addEventListener("reset", () => setTimeout(filter));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
}

// All but file and step is asked of one and the same episode; the first that fits is the one that is shown.
function filter() {
  const { files, packs, strings, lifecycles } = data, want = Object.fromEntries(new FormData(byId("filters")));
  const words = want.words.trim().toLowerCase();
  const hits = new Set(strings.flatMap((one, index) => (one.toLowerCase().includes(words) ? [index] : [])));
  const fits = (name, value) => !want[name] || want[name] === String(value);
  const asks = (one) => fits("position", one.position) && fits("status", one.status) && fits("outcome", outcomeOf(one));
  const textsOf = (one) => [one.context_before, one.context_after, one.feedback, one.error, ...one.turns.flatMap((turn) => [turn.observation, turn.response])];
  const hasHit = (one) => textsOf(one).some((number) => hits.has(number));
  const found = lifecycles.flatMap((life, number) => {
    if (!fits("run", files[life.file].run) || !fits("file", life.file) || !fits("step", life.step)) return [];
    const isNamed = packs[life.group].id.toLowerCase().includes(words);
    const episode = life.episodes.findIndex((one) => asks(one) && (isNamed || hasHit(one)));
    return episode < 0 ? [] : [[number, episode]];
  });
  byId("count").textContent = `${found.length.toLocaleString("en")} of ${counted(lifecycles.length, "lifecycle")}`;
  byId("list").replaceChildren(...found.map(([number, episode]) => rowOf(number, episode)));
  if (found.length) show(...found[0]);
  else byId("details").replaceChildren(p("empty", lifecycles.length ? "No lifecycle fits the filters." : "No lifecycles were written down."));
}

function rowOf(number, episode) {
  const life = data.lifecycles[number], id = data.packs[life.group].id;
  return choice("lifecycle", number, false, () => show(number, episode), { class: "row pick" }, // a pack's end tells it from others, so a long name is cut in the middle
    h("span", {}, span("row-name", id.slice(0, -14)), h("span", {}, id.slice(-14)), ` #${life.sibling}`),
    span("faint", span("row-name", originOf(life)), dots(life)));
}

// Open the episode that the page's address names.
function follow() {
  const asked = new URLSearchParams(location.hash.slice(1)), { files, packs, lifecycles } = data;
  const number = lifecycles.findIndex((one) => packs[one.group].id === asked.get("pack") && one.sibling === Number(asked.get("sibling")) &&
    one.step === Number(asked.get("step")) && (!asked.has("file") || files[one.file].label === asked.get("file")));
  if (number < 0) return;
  show(number, Math.max(0, Math.min(Number(asked.get("episode")) || 0, lifecycles[number].episodes.length - 1)));
  byId("list").querySelector(":checked")?.scrollIntoView();
  byId("details").scrollIntoView();
}

// JSON that was compressed and put into base64.
const bytes = Uint8Array.from(atob(byId("data").textContent), (letter) => letter.charCodeAt(0));
new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json().then((found) => {
  data = found;
  makeFilters();
  filter();
  follow();
  window.addEventListener("hashchange", follow);
});
