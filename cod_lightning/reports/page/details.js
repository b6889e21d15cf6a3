// One lifecycle: its pack as a timeline of episodes, and the chosen episode with its world, context and turns.

const SIGNS = { solved: "✓", unsolved: "✗", noted: "✎", garbled: "!", refused: "!", written: "✎", missing: "·" };
const OUTCOMES_OF = { solve: ["unsolved", "solved"], update: ["garbled", "noted"], write: ["refused", "written"] };
const BEGAN_WITH = { solve: "Context it was solved with", write: "Context it was written with" };
const OUTCOMES = { solved: "solved", unsolved: "not solved", noted: "context written", garbled: "context not parsed", refused: "not what was asked for", written: "written as asked for", missing: "no reward" };

function outcomeOf(episode) {
  return episode.success === null ? "missing" : (OUTCOMES_OF[episode.kind] || OUTCOMES_OF.update)[Number(episode.success)];
}

// The parts of a reward, where there are several, as a list in brackets.
function partsOf(episode) {
  const parts = Object.entries(episode.parts).map(([name, value]) => `${name} ${shown(value, 2, true)}`);
  return parts.length ? ` (${parts.join(", ")})` : "";
}

class Details {
  constructor(place, data, overview, goTo) {
    Object.assign(this, { place, data, overview, goTo, episode: 0, colouring: "logprob" });
  }

  show(number, episode) {
    this.life = this.data.lifecycles[number];
    this.number = number;
    this.file = this.overview.files[this.life.file];
    this.pack = this.data.packs[this.life.group];
    this.strongest = Math.max(1e-9, ...this.data.lifecycles.filter((one) => one.group === this.life.group).flatMap((one) => one.episodes.map((e) => Math.abs(e.advantage || 0))));
    this.panel = h("div", { role: "tabpanel", id: "episode", tabindex: 0, "aria-labelledby": "tab-chosen" });
    this.tabs = h("div", { class: "timeline", role: "tablist", "aria-label": "Episodes of the lifecycle" },
      this.life.episodes.map((one, index) => this.tab(one, index)));
    this.carried = carriedView(this.life, (number) => this.text(number), (index) => { this.choose(index); this.focus(); });
    refill(this.place, this.heading(), this.siblings(), this.carried, this.tabs, this.panel);
    this.choose(Math.max(0, Math.min(episode, this.life.episodes.length - 1)));
  }

  text(number) { return this.data.strings[number]; }

  heading() {
    const several = this.overview.runs.length > 1;
    const facts = [several ? this.overview.runs[this.file.run].name : null, this.file.label, `step ${this.life.step}`, `${this.pack.split} split`, `sibling ${this.life.sibling}`];
    this.link = h("a", { title: "The address of this episode in this report" }, "link");
    return h("header", {}, h("h3", {}, this.pack.id), h("p", { class: "faint" }, facts.filter(Boolean).join(" · "), " · ", this.link));
  }

  // What stands behind # for this episode; it names the pack and not a number, which the next report may give to another.
  address() {
    return new URLSearchParams({ pack: this.pack.id, sibling: this.life.sibling, step: this.life.step, file: this.file.label, episode: this.episode }).toString();
  }

  siblings() {
    const all = this.data.lifecycles.map((one, index) => [one, index]).filter(([one]) => one.group === this.life.group);
    if (all.length < 2) return null;
    return h("div", { class: "siblings", role: "group", "aria-label": "Siblings: other lifecycles through this pack" },
      h("span", { class: "faint" }, "siblings"),
      all.map(([one, index]) => h("button", { type: "button", "aria-current": index === this.number ? "true" : null, onclick: () => this.goTo(index) },
        `${one.sibling} `, dots(one))));
  }

  tab(one, index) {
    const outcome = outcomeOf(one), lake = one.path && this.pack.tasks[one.position].lake;
    const what = `${one.kind} ${one.position}`;
    return h("button", { type: "button", role: "tab", class: `episode ${one.kind} ${outcome}`, "aria-controls": "episode",
      title: `${what}: ${OUTCOMES[outcome]}, ${one.status}`,
      onclick: () => this.choose(index), onkeydown: (event) => this.key(event, index) },
    h("span", { class: "what" }, h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[outcome]), what),
    lake ? lakePicture(lake, one.path, true) : null,
    h("span", { class: "reward" }, `reward ${shown(one.reward)}`),
    one.advantage === null ? null : h("span", { class: "advantage", style: { background: COLOURINGS.advantage.colour(null, 0, one, this.strongest) } }, `adv. ${shown(one.advantage, 2, true)}`),
    one.status === "completed" ? null : h("span", { class: "status" }, one.status),
    h("span", { class: "unseen" }, OUTCOMES[outcome]));
  }

  key(event, index) {
    const last = this.life.episodes.length - 1;
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
    const tab = this.tabs.children[index], one = this.life.episodes[index];
    if (tab.offsetLeft < this.tabs.scrollLeft || tab.offsetLeft + tab.offsetWidth > this.tabs.scrollLeft + this.tabs.clientWidth)
      this.tabs.scrollLeft = tab.offsetLeft - 40;
    refill(this.panel, this.facts(one), one.changes ? this.update(one) : this.solve(one), this.turns(one),
      one.feedback ? block(one.kind === "solve" ? "Feedback of the environment" : one.success ? "What was refused, and why" : "Why the context did not parse", h("p", { class: "said" }, this.text(one.feedback))) : null,
      one.error ? block("Error", h("p", { class: "said error" }, this.text(one.error))) : null);
  }

  facts(one) {
    const tokens = one.turns.reduce((sum, turn) => sum + turn.logprobs.length, 0), version = one.turns.length ? one.turns[0].policy_version : null;
    const pairs = [["outcome", OUTCOMES[outcomeOf(one)]], ["status", one.status], ["reward", shown(one.reward) + partsOf(one)],
      ["advantage", shown(one.advantage, 3, true)], ["turns", one.turns.length], ["tokens", tokens || "–"], ["policy version", version === null || version < 0 ? "–" : version]];
    return h("dl", { class: "facts" }, pairs.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }

  solve(one) {
    const proposed = this.life.episodes.some((other) => other.kind === "write"), task = one.kind === "solve" ? this.pack.tasks[one.position] : null, lake = task && task.lake;
    const world = lake ? [lakePicture(lake, one.path, false), lakeFacts(lake)]
      : task ? [h("p", { class: "faint" }, proposed ? "The pack's own task here; a proposal before it may have put another in its place." : "The task's full specification; the policy does not see all of it."), h("pre", { class: "context" }, this.text(task.spec))] : null;
    return h("div", { class: "columns" },
      world ? put(block(lake ? "The lake" : "The task", h("div", { class: lake ? "lake-body" : "" }, world)), { class: lake ? "block drawn" : "block" }, []) : null,
      block(BEGAN_WITH[one.kind], h("p", { class: "context" }, this.text(one.context_before) || h("em", {}, "(empty)"))));
  }

  update(one) {
    return block("What the update changed in the context", entriesView(one.changes.map(([kind, before, after]) => [kind, this.text(before), this.text(after)])));
  }

  turns(one) {
    if (!one.turns.length) return h("p", { class: "empty" }, "No turns: the episode did not begin.");
    const offered = this.file.colourings, chosen = offered.includes(this.colouring) ? this.colouring : offered[0];
    const list = h("ol", { class: "turns" }, one.turns.map((turn) => h("li", {},
      h("p", { class: "who" }, one.kind === "solve" ? "world" : "asked"), h("p", { class: "said" }, this.text(turn.observation)),
      h("p", { class: "who" }, "policy"), responseView(this.text(turn.response), turn, one, this.file, chosen, this.strongest),
      turn.stop === "stop" ? null : h("p", { class: "faint" }, turn.stop === "length" ? "cut off: the response was as long as it may be" : "cut off: the window was full"))));
    if (!chosen) return block("Turns", list, h("p", { class: "faint" }, "No log-probs: played greedily, by a script, or by a model elsewhere."));
    return block("Turns", colouringBox(this.file, chosen, one, this.strongest, (name) => this.recolour(name)), list,
      this.file.trained ? h("p", { class: "faint" }, this.file.trained) : null);
  }

  recolour(name) {
    this.colouring = name;
    this.choose(this.episode);
    this.panel.querySelector(`input[value=${name}]`).focus();
  }
}

const block = (title, ...children) => h("section", { class: "block" }, h("h4", {}, title), children);

const MOST_DOTS = 16;

// A dot for each task; of a long pack how many were solved.
function dots(life) {
  const outcomes = life.episodes.filter((one) => one.kind === "solve").map(outcomeOf);
  if (outcomes.length > MOST_DOTS) return h("span", { class: "dots" }, `${outcomes.filter((one) => one === "solved").length} of ${outcomes.length} solved`);
  return h("span", { class: "dots" }, outcomes.map((one) => h("i", { class: one, title: OUTCOMES[one] })),
    h("span", { class: "unseen" }, outcomes.map((one) => OUTCOMES[one]).join(", ")));
}
