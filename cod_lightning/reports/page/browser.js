// The list of lifecycles: search and filters above, only the visible rows drawn, everything reachable with the keyboard.

const ROW = 46;

class Browser {
  constructor(section, data, overview) {
    Object.assign(this, { data, overview, found: [], chosen: 0 });
    this.details = new Details(h("div", { class: "details", id: "details", onkeydown: (event) => this.back(event) }), data, overview, (number) => this.goTo(number));
    this.list = h("div", { class: "list", role: "listbox", tabindex: 0, "aria-label": "Lifecycles", onkeydown: (event) => this.key(event), onscroll: () => this.draw() });
    this.inside = h("div", { class: "inside", role: "presentation" });
    this.list.append(this.inside);
    this.count = h("p", { class: "count", role: "status" });
    put(section, {}, [h("div", { class: "browser" }, h("div", { class: "side" }, this.filters(), this.count, this.list,
      h("p", { class: "faint keys" }, "↑ ↓ Enter · ← → episodes · Esc back · / search")), this.details.place)]);
    document.addEventListener("keydown", (event) => {
      if (event.key !== "/" || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      event.preventDefault();
      this.search.focus();
    });
    new ResizeObserver(() => this.draw()).observe(this.list);
    window.addEventListener("hashchange", () => this.follow());
    this.filter();
    this.follow();
  }

  // Open the episode that the page's address names.
  follow() {
    const asked = new URLSearchParams(location.hash.slice(1)), number = (name) => Number(asked.get(name));
    if (!asked.has("pack")) return;
    const found = this.data.lifecycles.findIndex((one) => this.data.packs[one.group].id === asked.get("pack") &&
      one.sibling === number("sibling") && one.step === number("step") && (!asked.has("file") || this.overview.files[one.file].label === asked.get("file")));
    if (found < 0) return;
    this.goTo(found);
    this.details.choose(Math.max(0, Math.min(number("episode") || 0, this.data.lifecycles[found].episodes.length - 1)));
    this.details.focus();
    this.details.place.scrollIntoView();
  }

  filters() {
    const lives = this.data.lifecycles, unique = (values) => [...new Set(values)];
    this.search = h("input", { type: "search", placeholder: "search in all texts", "aria-label": "Search in all texts", autocomplete: "off", spellcheck: "false",
      oninput: () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.filter(), 120); }, onkeydown: (event) => this.searchKey(event) });
    const steps = unique(lives.map((one) => one.step)).sort((a, b) => a - b);
    const positions = unique(lives.flatMap((one) => one.episodes.map((e) => e.position))).sort((a, b) => a - b);
    const statuses = unique(lives.flatMap((one) => one.episodes.map((e) => e.status))).sort();
    const several = this.overview.runs.length > 1;
    const files = this.overview.files.map((file, index) => [index, `${several ? `${this.overview.runs[file.run].name}: ` : ""}${file.label} (${file.shown})`]);
    this.choices = {
      run: several ? select("run", this.overview.runs.map((run, index) => [index, run.name])) : null,
      file: select("file", files),
      step: select("step", steps.map((step) => [step, step])),
      position: select("position", positions.map((position) => [position, position])),
      outcome: select("outcome", [["solved", "solved"], ["unsolved", "not solved"], ["garbled", "context not parsed"], ["missing", "no reward"]]),
      status: select("status", statuses.map((status) => [status, status])),
    };
    const boxes = Object.values(this.choices).filter(Boolean);
    boxes.forEach((box) => box.addEventListener("change", () => this.filter()));
    const clear = h("button", { type: "button", onclick: () => { boxes.forEach((box) => { box.querySelector("select").value = ""; }); this.search.value = ""; this.filter(); this.search.focus(); } }, "Clear");
    return h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, this.search, boxes, clear);
  }

  // Outcome, status and position are asked of one and the same episode; the first that fits is the one that is shown.
  filter() {
    const want = Object.fromEntries(Object.entries(this.choices).map(([key, box]) => [key, box ? box.querySelector("select").value : ""]));
    const words = this.search.value.trim().toLowerCase();
    const hits = words ? new Set(this.data.strings.flatMap((text, index) => (text.toLowerCase().includes(words) ? [index] : []))) : null;
    const asks = (one) => (!want.position || one.position === Number(want.position)) && (!want.status || one.status === want.status) && (!want.outcome || outcomeOf(one) === want.outcome);
    const hasHit = (one) => !hits || [one.context_before, one.context_after, one.feedback, one.error].some((text) => hits.has(text)) || one.turns.some((turn) => hits.has(turn.observation) || hits.has(turn.response));
    this.found = [];
    this.data.lifecycles.forEach((life, number) => {
      if (want.run && this.overview.files[life.file].run !== Number(want.run)) return;
      if ((want.file && life.file !== Number(want.file)) || (want.step && life.step !== Number(want.step))) return;
      const isNamed = words && this.data.packs[life.group].id.toLowerCase().includes(words);
      let episode = life.episodes.findIndex((one) => asks(one) && (isNamed || hasHit(one)));
      if (episode < 0 && hits && life.episodes.some(asks) && life.episodes.some(hasHit)) episode = life.episodes.findIndex(hasHit);
      if (episode >= 0) this.found.push([number, episode]);
    });
    this.count.textContent = `${this.found.length.toLocaleString("en")} of ${counted(this.data.lifecycles.length, "lifecycle")}`;
    this.inside.style.height = `${this.found.length * ROW}px`;
    this.list.scrollTop = 0;
    this.choose(0);
  }

  choose(index) {
    this.chosen = Math.max(0, Math.min(this.found.length - 1, index));
    const top = this.chosen * ROW, height = this.list.clientHeight;
    if (top < this.list.scrollTop) this.list.scrollTop = top;
    if (top + ROW > this.list.scrollTop + height) this.list.scrollTop = top + ROW - height;
    this.draw();
    if (this.found.length) this.details.show(...this.found[this.chosen]);
    else refill(this.details.place, h("p", { class: "empty" }, this.data.lifecycles.length ? "No lifecycle fits the filters." : "No lifecycles were written down."));
  }

  goTo(number) {
    const place = this.found.findIndex(([one]) => one === number);
    if (place >= 0) this.choose(place);
    else this.details.show(number, 0);
    this.details.focus();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - 4), last = Math.min(this.found.length, first + Math.ceil(this.list.clientHeight / ROW) + 9);
    const rows = [];
    for (let index = first; index < last; index++) rows.push(this.row(index));
    this.inside.replaceChildren(...rows);
    if (this.found.length) this.list.setAttribute("aria-activedescendant", `row-${this.chosen}`);
    else this.list.removeAttribute("aria-activedescendant");
  }

  row(index) {
    const life = this.data.lifecycles[this.found[index][0]], file = this.overview.files[life.file], several = this.overview.runs.length > 1;
    const id = this.data.packs[life.group].id; // its end tells it from others, so a long one is cut in the middle
    return h("div", { class: "row", role: "option", id: `row-${index}`, "aria-selected": String(index === this.chosen), "aria-posinset": index + 1, "aria-setsize": this.found.length,
      style: { top: `${index * ROW}px` }, onclick: () => { this.choose(index); this.list.focus(); } },
    h("span", { class: "row-top" }, several ? swatch(file.run) : null, h("span", { class: "row-name" }, id.slice(0, -14)), h("span", { class: "row-name" }, id.slice(-14)), h("span", { class: "row-sibling" }, `#${life.sibling}`)),
    h("span", { class: "row-under" }, h("span", {}, `step ${life.step} · ${file.label}`), dots(life)));
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1);
    const to = { ArrowDown: this.chosen + 1, ArrowUp: this.chosen - 1, PageDown: this.chosen + page, PageUp: this.chosen - page, Home: 0, End: this.found.length - 1 }[event.key];
    if (event.key === "Enter" && this.found.length) this.details.focus();
    else if (event.key === "Escape") this.search.focus();
    else if (to !== undefined) this.choose(to);
    else return;
    event.preventDefault();
  }

  searchKey(event) {
    if (event.key === "Escape") { this.search.value = ""; this.filter(); }
    else if (event.key === "ArrowDown" || event.key === "Enter") this.list.focus();
    else return;
    event.preventDefault();
  }

  back(event) {
    if (event.key !== "Escape") return;
    event.preventDefault();
    this.list.focus();
  }
}

function select(name, options) {
  return h("label", { class: "filter" }, h("span", {}, name), h("select", { name }, h("option", { value: "" }, "any"), options.map(([value, text]) => h("option", { value }, text))));
}

unpacked("data").then(({ overview, lifecycles }) => {
  drawOverview(overview);
  new Browser(byId("lifecycles"), lifecycles, overview);
});
