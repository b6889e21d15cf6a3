// One lifecycle: its pack as a timeline of episodes, and the chosen episode with its world, context and turns.

const SIGNS = { solved: "✓", unsolved: "✗", noted: "✎", garbled: "!", proposed: "?", refused: "!", written: "✎", empty: "!", missing: "·" };
const KINDS = ["solve", "update", "propose", "write"];
const OUTCOMES = { solved: "solved", unsolved: "not solved", noted: "context written", garbled: "context not parsed", proposed: "a task was proposed", refused: "no task was proposed", written: "a text was written", empty: "no text was written", missing: "no reward" };

function outcomeOf(episode) {
  if (episode.ok === null || episode.ok === undefined) return "missing";
  return [["unsolved", "solved"], ["garbled", "noted"], ["refused", "proposed"], ["empty", "written"]][episode.u][Number(episode.ok)];
}

// The parts of a reward, where there are several, as a list in brackets.
function partsOf(episode) {
  const parts = Object.entries(episode.rp || {}).map(([name, value]) => `${name} ${shown(value, 2, true)}`);
  return parts.length ? ` (${parts.join(", ")})` : "";
}

class Details {
  constructor(place, data, overview, goTo) {
    Object.assign(this, { place, data, overview, goTo, episode: 0, colouring: "logprob" });
  }

  show(number, episode) {
    this.life = this.data.lifecycles[number];
    this.number = number;
    this.file = this.overview.files[this.life.f];
    this.pack = this.data.packs[this.life.p];
    this.strongest = Math.max(1e-9, ...this.data.lifecycles.filter((one) => one.g === this.life.g).flatMap((one) => one.e.map((e) => Math.abs(e.A || 0))));
    this.panel = h("div", { role: "tabpanel", id: "episode", tabindex: 0, "aria-labelledby": "tab-chosen" });
    this.tabs = h("div", { class: "timeline", role: "tablist", "aria-label": "Episodes of the lifecycle" },
      this.life.e.map((one, index) => this.tab(one, index)));
    this.carried = carriedView(this.life, (number) => this.text(number), (index) => { this.choose(index); this.focus(); });
    refill(this.place, this.heading(), this.siblings(), this.carried, this.tabs, this.panel);
    this.choose(Math.max(0, Math.min(episode, this.life.e.length - 1)));
  }

  text(number) { return this.data.strings[number]; }

  heading() {
    const several = this.overview.runs.length > 1;
    const facts = [several ? this.overview.runs[this.file.run].name : null, this.file.label, `step ${this.life.s}`, `${this.pack.split} split`, `sibling ${this.life.k}`];
    const name = `${this.pack.id} sibling ${this.life.k} step ${this.life.s}`.replace(/[^\w-]+/g, "_");
    this.link = h("a", { title: "The address of this episode in this report" }, "link");
    return h("header", {}, h("h3", {}, this.pack.id), h("p", { class: "faint" }, facts.filter(Boolean).join(" · "), " · ", this.link, " · ",
      h("a", { href: "#", download: `${name}.svg`, title: "This lifecycle as a picture (SVG)", onclick: (event) => this.picture(event.currentTarget) }, "picture")));
  }

  picture(link) {
    const facts = [this.file.label, `step ${this.life.s}`, `sibling ${this.life.k}`].join(" · ");
    const file = new Blob([stripOf(this.life, this.pack, facts, (number) => this.text(number))], { type: "image/svg+xml" });
    link.href = URL.createObjectURL(file);
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // What stands behind # for this episode; it names the pack and not a number, which the next report may give to another.
  address() {
    return new URLSearchParams({ pack: this.pack.id, sibling: this.life.k, step: this.life.s, file: this.file.label, episode: this.episode }).toString();
  }

  siblings() {
    const all = this.data.lifecycles.map((one, index) => [one, index]).filter(([one]) => one.g === this.life.g);
    if (all.length < 2) return null;
    return h("div", { class: "siblings", role: "group", "aria-label": "Siblings: other lifecycles through this pack" },
      h("span", { class: "faint" }, "siblings"),
      all.map(([one, index]) => h("button", { type: "button", "aria-current": index === this.number ? "true" : null, onclick: () => this.goTo(index) },
        `${one.k} `, dots(one))));
  }

  tab(one, index) {
    const outcome = outcomeOf(one), lake = one.w && this.pack.tasks[one.n].lake;
    const what = `${KINDS[one.u]} ${one.n}`;
    return h("button", { type: "button", role: "tab", class: `episode ${KINDS[one.u]} ${outcome}`, "aria-controls": "episode",
      title: `${what}: ${OUTCOMES[outcome]}, ${one.st}`,
      onclick: () => this.choose(index), onkeydown: (event) => this.key(event, index) },
    h("span", { class: "what" }, h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[outcome]), what),
    lake ? lakePicture(lake, one.w, true) : null,
    h("span", { class: "reward" }, `reward ${shown(one.r)}`),
    one.A === null ? null : h("span", { class: "advantage", style: { background: COLOURINGS.advantage.colour(null, 0, one, this.strongest) } }, `adv. ${shown(one.A, 2, true)}`),
    one.st === "completed" ? null : h("span", { class: "status" }, one.st),
    h("span", { class: "unseen" }, OUTCOMES[outcome]));
  }

  key(event, index) {
    const last = this.life.e.length - 1;
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: 0, End: last }[event.key];
    if (to === undefined || to < 0 || to > last) return;
    event.preventDefault();
    this.choose(to);
    this.focus();
  }

  focus() { this.tabs.children[this.episode].focus(); }

  choose(index) {
    this.episode = index;
    this.link.href = `#${this.address()}`;
    [...this.tabs.children].forEach((tab, at) => {
      tab.setAttribute("aria-selected", String(at === index));
      tab.tabIndex = at === index ? 0 : -1;
      tab.id = at === index ? "tab-chosen" : "";
    });
    if (this.carried) markEpisode(this.carried, index);
    const tab = this.tabs.children[index], one = this.life.e[index];
    if (tab.offsetLeft < this.tabs.scrollLeft || tab.offsetLeft + tab.offsetWidth > this.tabs.scrollLeft + this.tabs.clientWidth)
      this.tabs.scrollLeft = tab.offsetLeft - 40;
    refill(this.panel, this.facts(one), one.u === 1 ? this.update(one) : this.solve(one), this.turns(one),
      one.fb ? block(one.u ? "Why the context did not parse" : "Feedback of the environment", h("p", { class: "said" }, this.text(one.fb))) : null,
      one.er ? block("Error", h("p", { class: "said error" }, this.text(one.er))) : null);
  }

  facts(one) {
    const tokens = one.t.reduce((sum, turn) => sum + turn[4].length, 0), version = one.t.length ? one.t[0][3] : null;
    const pairs = [["outcome", OUTCOMES[outcomeOf(one)]], ["status", one.st], ["reward", shown(one.r) + partsOf(one)], ["return", shown(one.R, 3)],
      ["advantage", shown(one.A, 3, true)], ["turns", one.t.length], ["tokens", tokens || "–"], ["policy version", version === null ? "–" : version < 0 ? "scripted" : version]];
    return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  solve(one) {
    const proposed = this.life.e.some((other) => other.u === 2), task = one.u ? null : this.pack.tasks[one.n], lake = task && task.lake;
    const world = lake ? [lakePicture(lake, one.w, false), lakeFacts(lake)]
      : task ? [h("p", { class: "faint" }, proposed ? "The pack's own task here; a proposal may have put another in its place." : "The task's full specification; the policy does not see all of it."), h("pre", { class: "context" }, task.spec)] : null;
    return h("div", { class: "columns" },
      world ? put(block(lake ? "The lake" : "The task", h("div", { class: lake ? "lake-body" : "" }, world)), { class: lake ? "block drawn" : "block" }, []) : null,
      block(["Context it was solved with", "", "Context it was proposed with", "Context it was written with"][one.u], h("p", { class: "context" }, this.text(one.b) || h("em", {}, "(empty)"))));
  }

  update(one) {
    return block("What the update changed in the context", entriesView(one.d.map(([kind, before, after]) => [kind, this.text(before), this.text(after)])));
  }

  turns(one) {
    if (!one.t.length) return h("p", { class: "empty" }, "No turns: the episode did not begin.");
    const offered = this.file.colourings, chosen = offered.includes(this.colouring) ? this.colouring : offered[0];
    const list = h("ol", { class: "turns" }, one.t.map((turn) => h("li", {},
      h("p", { class: "who" }, one.u ? "asked" : "world"), h("p", { class: "said" }, this.text(turn[0])),
      h("p", { class: "who" }, "policy"), responseView(this.text(turn[1]), turn, one, this.file, chosen, this.strongest),
      turn[2] === "stop" ? null : h("p", { class: "faint" }, turn[2] === "length" ? "cut off: the response was as long as it may be" : "cut off: the window was full"))));
    if (!chosen) return block("Turns", list, h("p", { class: "faint" }, "No log-probs: a scripted policy played."));
    return block("Turns", colouringBox(this.file, chosen, one, this.strongest, (name) => this.recolour(name)), list,
      [this.file.advantages, this.file.gaps].filter(Boolean).map((remark) => h("p", { class: "faint" }, remark)));
  }

  recolour(name) {
    this.colouring = name;
    this.choose(this.episode);
    this.panel.querySelector(`input[value=${name}]`).focus();
  }
}

const block = (title, ...children) => h("section", { class: "block" }, h("h4", {}, title), children);
const dots = (life) => h("span", { class: "dots" }, life.e.filter((one) => !one.u).map((one) => h("i", { class: outcomeOf(one), title: OUTCOMES[outcomeOf(one)] })),
  h("span", { class: "unseen" }, life.e.filter((one) => !one.u).map((one) => OUTCOMES[outcomeOf(one)]).join(", ")));
