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

// A number for people: a real minus sign, tiny ones as powers of ten.
function shown(value, digits = 2, sign = false) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value), isTiny = size !== 0 && size < 0.5 * 10 ** -digits;
  const text = isTiny ? size.toExponential(1).replace("-", "−") : size.toFixed(size >= 100 ? 0 : digits);
  return (value < 0 ? "−" : sign && value > 0 ? "+" : "") + text;
}

const counted = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

// ---- charts

document.querySelectorAll(".chart svg[data-x]").forEach((picture) => {
  const [left, right, x0, x1] = picture.dataset.x.split(" ").map(Number), [bottom, top, y0, y1] = picture.dataset.y.split(" ").map(Number);
  const lines = [...picture.querySelectorAll(".line")].reverse().map((line) => ({ label: line.dataset.label, colour: line.getAttribute("color"),
    points: line.querySelector(".stroke").getAttribute("d").slice(1).split(/[ML]/).map((point) => point.split(" ").map(Number)) }));
  const stepOf = (x) => Math.round(x0 + ((x - left) / (right - left)) * (x1 - x0)), readout = p("readout");
  picture.after(readout);
  picture.addEventListener("pointerleave", () => readout.replaceChildren());
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect(), x = ((event.clientX - box.left) / box.width) * picture.viewBox.baseVal.width;
    const stops = lines.flatMap(({ points }) => points.map(([at]) => at));
    const nearest = stops.reduce((a, b) => (Math.abs(b - x) < Math.abs(a - x) ? b : a));
    const values = lines.map(({ label, colour, points }) => {
      const point = points.find(([at]) => stepOf(at) === stepOf(nearest));
      return point && h("span", { style: { color: colour } }, `${label} ${shown(y0 + ((point[1] - bottom) / (top - bottom)) * (y1 - y0), 3)}`);
    });
    readout.replaceChildren(h("b", {}, stepOf(nearest)), ...values.filter(Boolean));
  });
});

// ---- words for episodes

const OUTCOMES = { solved: ["✓", "solved"], unsolved: ["✗", "not solved"], noted: ["✎", "context written"], garbled: ["!", "context not parsed"],
  refused: ["!", "not what was asked for"], written: ["✎", "written as asked for"], missing: ["·", "no reward"] };
const OUTCOMES_OF = { solve: ["unsolved", "solved"], update: ["garbled", "noted"], write: ["refused", "written"] };
const MOST_DOTS = 16;

const outcomeOf = (episode) => (episode.success === null ? "missing" : (OUTCOMES_OF[episode.kind] || OUTCOMES_OF.update)[Number(episode.success)]);
const said = (episode) => OUTCOMES[outcomeOf(episode)][1];
const nameOf = (episode) => `${episode.kind} ${episode.position}`;
const dot = (episode) => h("i", { class: outcomeOf(episode), title: said(episode), role: "img", "aria-label": said(episode) });

// A dot for each task; of a long pack how many were solved.
function dots(life) {
  const solves = life.episodes.filter((one) => one.kind === "solve");
  const isLong = solves.length > MOST_DOTS;
  return span("dots", isLong ? `${solves.filter((one) => one.success).length} of ${solves.length} solved` : solves.map(dot));
}

// ---- tokens: what colours them, and what the colours mean; log-probs are in -1/100 nats, gaps in 1/10000

const WIDEST_GAP = 0.2, LOWEST_LOGPROB = 3;
const mixed = (variable, share) => `color-mix(in srgb, var(${variable}) ${Math.round(Math.min(1, share) * 70)}%, transparent)`;

const COLOURINGS = {
  logprob: {
    label: "log-prob",
    colour: (turn, at) => mixed("--doubt", turn.logprobs[at] / 100 / LOWEST_LOGPROB),
    note: () => `Deep orange: in doubt, −${LOWEST_LOGPROB} nats and below under the sampler; none: sure.`,
  },
  advantage: {
    label: "advantage",
    colour: (turn, at, one, strongest) => mixed(one.advantage < 0 ? "--bad" : "--good", Math.abs(one.advantage) / strongest),
    note: (one, strongest) => `Green: better than its siblings, red: worse, at most ±${shown(strongest)}. As the update had it, for all tokens.`,
  },
  gap: {
    label: "log-prob gap",
    colour: (turn, at) => mixed(turn.gaps[at] < 0 ? "--less" : "--more", Math.abs(turn.gaps[at]) / 1e4 / WIDEST_GAP),
    note: ({ gap }) => `Blue: likelier, orange: less likely, deepest at ±${WIDEST_GAP}. Policy minus sampler, in nats; mean size ` +
      `${shown(gap.mean, 4)}, largest ${shown(gap.largest, 4)}. ` +
      (gap.updates ? `The policy had moved by ${counted(gap.updates, "update")} since it sampled: that drift is in the gap, too.`
        : "No update lies between the two, so this is how far engine and training forward disagree."),
  },
};

function tokenTitle(turn, at) {
  const logprob = -turn.logprobs[at] / 100, gap = (turn.gaps[at] || 0) / 1e4;
  const sampled = `log-prob ${shown(logprob)}, probability ${shown(Math.exp(logprob))}`;
  return turn.gaps.length ? `${sampled}; in the update gap ${gap ? `${shown(gap, 4, true)}, ratio ${shown(Math.exp(gap), 3)}` : "below 0.0001"}` : sampled;
}

// The response with its words coloured where they are its tokens; else the response, and a stroke for each token.
function responseView(text, turn, hasWords, colour) {
  const words = text.match(/\s+|\S+/g) || [], isStopped = turn.stop === "stop";
  const mean = turn.logprobs.reduce((sum, one) => sum - one / 100, 0) / turn.logprobs.length;
  const style = (at) => (colour ? { background: colour(turn, at) } : {});
  const token = (at, ...said) => h("span", { class: "token", title: `token ${at}: ${tokenTitle(turn, at)}`, style: style(at) }, said);
  if (!turn.logprobs.length) return p("said response", text);
  if (!hasWords || words.filter((word) => word.trim()).length !== turn.logprobs.length - isStopped)
    return h("div", {}, p("said response", text), p("strokes", turn.logprobs.map((_, at) => token(at))),
      p("faint", `${counted(turn.logprobs.length, "token")}, mean log-prob ${shown(mean)}; a stroke for each`));
  let at = 0;
  return p("said response", words.map((word) => (word.trim() ? token(at++, word) : word)), isStopped ? [" ", token(at, "■")] : null);
}

// ---- contexts, entry by entry

const SIGNS = { kept: " ", removed: "−", added: "+", replaced: "~" };

// The entries of a context before and after an update; of a replaced one, its words.
function entriesView(changes, text) {
  const piece = ([kind, number]) => (kind ? h(kind, {}, text(number)) : text(number));
  const count = (kind) => changes.filter(([one]) => one === kind).length, kinds = Object.keys(SIGNS).filter(count);
  if (!changes.length) return p("context", h("em", {}, "(empty)"));
  const entry = ([kind, pieces]) => h("li", { title: kind }, span("sign", SIGNS[kind]), span(kind, pieces.map(piece)));
  return [h("ul", { class: "context entries" }, changes.map(entry)),
    p("faint", kinds.join() === "kept" ? "unchanged" : `Entries: ${kinds.map((kind) => `${count(kind)} ${kind}`).join(", ")}.`)];
}

// What the context carried: a row for each entry, a column for each episode.
function carriedView(life, text, chosen) {
  if (!life.entries.length) return null;
  const at = (index) => nameOf(life.episodes[index]), column = (index) => ({ class: index === chosen ? "chosen" : null });
  const fate = (one) => [one.came < 0 ? "there from the start" : `from ${at(one.came)}`,
    one.changes.length && `changed by ${one.changes.map(([index]) => at(index)).join(", ")}`,
    one.gone !== null && `gone after ${at(one.gone)}${one.why ? `: ${text(one.why)}` : ""}`].filter(Boolean).join("; ");
  const cell = (one, episode, index) => {
    const change = one.changes.find(([place]) => place === index), isLive = one.came < index && (one.gone === null || index < one.gone);
    const signs = (one.came === index ? "+" : "") + (change ? "~" : "") + (one.gone === index ? "×" : "");
    return h("td", { ...column(index), title: change ? `before: ${text(change[1])}` : null },
      one.shown.includes(index) ? span("dots", dot(episode)) : null, signs || (isLive && !one.shown.includes(index) && "–"));
  };
  const name = (one) => (text(one.key) === text(one.text) ? text(one.text) : [span("faint", text(one.key)), " ", text(one.text)]);
  const row = (one) => h("tr", {}, h("th", { scope: "row", title: text(one.text) }, name(one)), life.episodes.map((episode, index) => cell(one, episode, index)),
    h("td", {}, one.num_tasks ? `${shown(one.earned)} in ${one.num_tasks}` : "–"), h("td", { class: "fate" }, fate(one)));
  const head = (words, title, of) => h("th", { scope: "col", title, ...of }, words);
  const heads = [head("entry"), life.episodes.map((one, index) => head(one.kind === "solve" ? one.position : "", nameOf(one), column(index))),
    head("earned", "Mean reward of the tasks that were shown the entry, and how many they are"), head("what became of it")];
  return block("What the context carried",
    div("scroll carried", h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, life.entries.map(row)))),
    p("faint", "+ came, ~ changed, × gone, – kept; a square: shown to the task or chosen by it (full: solved, hollow: not).",
      life.more_entries ? ` ${life.more_entries} more.` : ""));
}

// ---- one lifecycle

const block = (title, ...children) => h("section", { class: "block" }, h("h4", {}, title), children);
const WHY_FEEDBACK = { solve: "Feedback of the environment", true: "What was refused, and why", false: "Why the context did not parse" };
const CUT = { length: "cut off: the response was as long as it may be", window: "cut off: the window was full" };

class Details {
  constructor(data) {
    Object.assign(this, { data, place: byId("details"), colouring: "logprob" });
    this.text = (number) => data.strings[number];
  }

  show(number, index) {
    const { runs, files, packs, lifecycles } = this.data, life = lifecycles[number], one = life.episodes[index];
    const file = files[life.file], pack = packs[life.group];
    const siblings = lifecycles.map((other, place) => [other, place]).filter(([other]) => other.group === life.group);
    const strongest = Math.max(1e-9, ...siblings.flatMap(([other]) => other.episodes.map((e) => Math.abs(e.advantage || 0))));
    Object.assign(this, { number, index, life });
    const facts = [runs.length > 1 ? runs[file.run] : null, file.label, `step ${life.step}`, `${pack.split} split`, `sibling ${life.sibling}`].filter(Boolean);
    // It names the pack and not a number, which the next report may give to another.
    const address = new URLSearchParams({ pack: pack.id, sibling: life.sibling, step: life.step, file: file.label, episode: index });
    const go = (place, episode) => () => { this.show(place, episode); this.focus(); };
    this.place.replaceChildren(...[
      h("header", {}, h("h3", {}, pack.id),
        p("faint", facts.join(" · "), " · ", h("a", { href: `#${address}`, title: "The address of this episode in this report" }, "link"))),
      siblings.length > 1 && div("siblings", span("faint", "siblings"), siblings.map(([other, place]) =>
        h("button", { type: "button", "aria-current": place === number && "true", onclick: go(place, 0) }, `${other.sibling} `, dots(other)))),
      carriedView(life, this.text, index),
      div("timeline", life.episodes.map((other, at) => this.tab(other, at, strongest, go(number, at)))),
      one && h("div", { id: "episode", tabindex: 0 }, this.facts(one),
        one.changes ? block("What the update changed in the context", entriesView(one.changes, this.text)) : this.start(one, pack),
        this.turns(one, file, strongest),
        one.feedback ? block(WHY_FEEDBACK[one.kind] || WHY_FEEDBACK[one.success], p("said", this.text(one.feedback))) : null,
        one.error ? block("Error", p("said error", this.text(one.error))) : null),
    ].filter(Boolean));
  }

  tab(one, at, strongest, go) {
    const [sign, words] = OUTCOMES[outcomeOf(one)];
    const style = { background: one.advantage === null ? "none" : COLOURINGS.advantage.colour(null, 0, one, strongest) };
    return h("button", { type: "button", class: `episode ${outcomeOf(one)} ${one.kind}`, title: `${nameOf(one)}: ${words}, ${one.status}`,
      "aria-current": at === this.index && "true", onclick: go, onkeydown: (event) => this.key(event) },
      span("what", sign, " ", nameOf(one)), span("faint", `reward ${shown(one.reward)}`),
      one.advantage === null ? null : h("span", { style }, `adv. ${shown(one.advantage, 2, true)}`),
      one.status === "completed" ? null : span("status", one.status));
  }

  key(event) {
    const last = this.life.episodes.length - 1, to = { ArrowRight: this.index + 1, ArrowLeft: this.index - 1, Home: 0, End: last }[event.key];
    if (to === undefined || to < 0 || to > last) return;
    event.preventDefault();
    this.show(this.number, to);
    this.focus();
  }

  focus() { this.place.querySelector(".episode[aria-current=true]")?.focus(); }

  facts(one) {
    const parts = Object.entries(one.parts).map(([name, value]) => `${name} ${shown(value, 2, true)}`).join(", ");
    const version = one.turns.length ? one.turns[0].policy_version : -1, tokens = one.turns.reduce((sum, turn) => sum + turn.logprobs.length, 0);
    const pairs = { outcome: said(one), status: one.status, reward: shown(one.reward) + (parts && ` (${parts})`),
      advantage: shown(one.advantage, 3, true), turns: one.turns.length, tokens: tokens || "–", "policy version": version < 0 ? "–" : version };
    return h("dl", { class: "facts" }, Object.entries(pairs).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  start(one, pack) {
    const note = this.life.episodes.some((other) => other.kind === "write")
      ? "The pack's own task here; a proposal before it may have put another in its place."
      : "The task's full specification; the policy does not see all of it.";
    const context = p("context", this.text(one.context_before) || h("em", {}, "(empty)"));
    if (one.kind !== "solve") return block("Context it was written with", context);
    return div("columns", block("The task", p("faint", note), p("context", this.text(pack.tasks[one.position]))), block("Context it was solved with", context));
  }

  turns(one, file, strongest) {
    if (!one.turns.length) return p("empty", "No turns: the episode did not begin.");
    const offered = file.colourings, chosen = offered.includes(this.colouring) ? this.colouring : offered[0];
    const isKnown = chosen === "logprob" || (chosen && one[chosen] !== null), colouring = COLOURINGS[chosen];
    const colour = isKnown && ((turn, at) => colouring.colour(turn, at, one, strongest));
    const note = !chosen ? "No log-probs: played greedily, by a script, or by a model elsewhere."
      : isKnown ? colouring.note(one, strongest) : "Not coloured: no update trained on this episode, as on all of advantage 0.";
    const radio = (value) => h("label", {},
      h("input", { type: "radio", name: "colouring", value, checked: value === chosen, onchange: () => this.recolour(value) }), COLOURINGS[value].label);
    const turn = (of) => h("li", {}, p("faint", one.kind === "solve" ? "world" : "asked"), p("said", this.text(of.observation)), p("faint", "policy"),
      responseView(this.text(of.response), chosen ? of : { ...of, logprobs: [] }, file.words, colour),
      of.stop === "stop" ? null : p("faint", CUT[of.stop] || CUT.window));
    return block("Turns", chosen ? h("fieldset", { class: "colouring" }, h("legend", {}, "colour tokens by"), offered.map(radio)) : null,
      p("faint scale", note), h("ol", { class: "turns" }, one.turns.map(turn)), p("faint", file.trained));
  }

  recolour(name) {
    this.colouring = name;
    this.show(this.number, this.index);
    this.place.querySelector(`input[value=${name}]`).focus();
  }
}

// ---- the list

class Browser {
  constructor(data) {
    Object.assign(this, { data, details: new Details(data), found: [], chosen: 0 });
    const { runs, files, lifecycles } = data, episodes = lifecycles.flatMap((one) => one.episodes);
    const of = (values) => [...new Set(values)].sort((a, b) => (a > b ? 1 : -1)).map((one) => [one, one]);
    const typed = () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.filter(), 120); };
    this.search = h("input", { type: "search", placeholder: "search in all texts", "aria-label": "Search in all texts", oninput: typed });
    this.choices = {
      run: runs.length > 1 ? runs.map((name, index) => [index, name]) : null,
      file: files.map((file, index) => [index, `${runs.length > 1 ? `${runs[file.run]}: ` : ""}${file.label} (${file.shown})`]),
      step: of(lifecycles.map((one) => one.step)), position: of(episodes.map((one) => one.position)),
      outcome: Object.entries(OUTCOMES).map(([name, [, words]]) => [name, words]), status: of(episodes.map((one) => one.status)),
    };
    const option = ([value, text]) => h("option", { value }, text);
    const select = ([name, options]) => options && h("label", {}, name, h("select", { name, onchange: () => this.filter() }, [["", "any"], ...options].map(option)));
    this.form = h("form", { class: "filters", onsubmit: (event) => event.preventDefault(), onreset: () => setTimeout(() => this.filter()) },
      this.search, Object.entries(this.choices).map(select), h("button", { type: "reset" }, "Clear"));
    this.count = h("p", { class: "faint count", role: "status" });
    this.list = h("div", { class: "list", tabindex: 0, "aria-label": "Lifecycles", onkeydown: (event) => this.key(event) });
    byId("side").append(this.form, this.count, this.list, p("faint", "↑ ↓ Enter · ← → episodes · Esc back · / search"));
    this.details.place.addEventListener("keydown", (event) => { if (event.key === "Escape") this.list.focus(); });
    this.search.addEventListener("keydown", (event) => { if (event.key === "Enter") this.list.focus(); });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      event.preventDefault();
      this.search.focus();
    });
    window.addEventListener("hashchange", () => this.follow());
    this.filter();
    this.follow();
  }

  // Open the episode that the page's address names.
  follow() {
    const asked = new URLSearchParams(location.hash.slice(1)), { files, packs, lifecycles } = this.data;
    const number = lifecycles.findIndex((one) => packs[one.group].id === asked.get("pack") && one.sibling === Number(asked.get("sibling")) &&
      one.step === Number(asked.get("step")) && (!asked.has("file") || files[one.file].label === asked.get("file")));
    if (number < 0) return;
    this.choose(this.found.findIndex(([one]) => one === number));
    this.details.show(number, Math.max(0, Math.min(Number(asked.get("episode")) || 0, lifecycles[number].episodes.length - 1)));
    this.details.focus();
    this.details.place.scrollIntoView();
  }

  // Outcome, status and position are asked of one and the same episode; the first that fits is the one that is shown.
  filter() {
    const { files, packs, strings, lifecycles } = this.data, want = Object.fromEntries(new FormData(this.form));
    const words = this.search.value.trim().toLowerCase();
    const hits = new Set(strings.flatMap((text, index) => (text.toLowerCase().includes(words) ? [index] : [])));
    const fits = (name, value) => !want[name] || want[name] === String(value);
    const asks = (one) => fits("position", one.position) && fits("status", one.status) && fits("outcome", outcomeOf(one));
    const textsOf = (one) => [one.context_before, one.context_after, one.feedback, one.error, ...one.turns.flatMap((turn) => [turn.observation, turn.response])];
    const hasHit = (one) => textsOf(one).some((text) => hits.has(text));
    this.found = [];
    lifecycles.forEach((life, number) => {
      if (!fits("run", files[life.file].run) || !fits("file", life.file) || !fits("step", life.step)) return;
      const isNamed = packs[life.group].id.toLowerCase().includes(words);
      const asked = life.episodes.findIndex((one) => asks(one) && (isNamed || hasHit(one)));
      const episode = asked < 0 && life.episodes.some(asks) ? life.episodes.findIndex(hasHit) : asked;
      if (episode >= 0) this.found.push([number, episode]);
    });
    this.count.textContent = `${this.found.length.toLocaleString("en")} of ${counted(lifecycles.length, "lifecycle")}`;
    this.list.replaceChildren(...this.found.map(([number], index) => this.row(lifecycles[number], index)));
    this.chosen = -1;
    if (this.found.length) this.open(0);
    else this.details.place.replaceChildren(p("empty", lifecycles.length ? "No lifecycle fits the filters." : "No lifecycles were written down."));
  }

  row(life, index) {
    const { runs, files, packs } = this.data, file = files[life.file], id = packs[life.group].id;
    const from = `${runs.length > 1 ? `${runs[file.run]}: ` : ""}${file.label}, step ${life.step}`;
    return h("div", { class: "row", onclick: () => this.open(index) }, // a pack's end tells it from others, so a long name is cut in the middle
      h("span", {}, span("row-name", id.slice(0, -14)), h("span", {}, id.slice(-14)), ` #${life.sibling}`), span("faint", span("row-name", from), dots(life)));
  }

  open(index) {
    this.choose(Math.max(0, Math.min(this.found.length - 1, index)));
    this.details.show(...this.found[this.chosen]);
  }

  choose(index) {
    this.list.children[this.chosen]?.removeAttribute("aria-current");
    this.chosen = index;
    const row = this.list.children[index];
    row?.setAttribute("aria-current", "true");
    if (row) this.list.scrollTop = Math.min(row.offsetTop, Math.max(this.list.scrollTop, row.offsetTop + row.offsetHeight - this.list.clientHeight));
  }

  key(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -Infinity, End: Infinity }, move = moves[event.key];
    if (event.key === "Enter") this.details.focus();
    else if (event.key === "Escape") this.search.focus();
    else if (move && this.found.length) this.open(this.chosen + move);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

// JSON that was compressed and put into base64.
const bytes = Uint8Array.from(atob(byId("data").textContent), (letter) => letter.charCodeAt(0));
new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json().then((data) => new Browser(data));
