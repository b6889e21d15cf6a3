// The policy's response, with its words coloured by one of three quantities; tokens that are no words become bars.

const WIDEST_GAP = 0.2, LOWEST_LOGPROB = 3;
const mixed = (variable, share, most) => `color-mix(in srgb, var(${variable}) ${Math.round(Math.min(1, share) * most)}%, transparent)`;

const UNTRAINED = "Not coloured: no update trained on this episode, as on all of advantage 0.";

// Each colouring: its label; whether an episode has it; the colour of token `at` of a turn; and, for its legend, the two ends
// and the sentence beside them. A turn's log-probs are in -1/100 nats, its gaps in 1/10000.
const COLOURINGS = {
  logprob: {
    label: "log-prob",
    known: () => true,
    colour: (turn, at) => mixed("--doubt", turn.logprobs[at] / 100 / LOWEST_LOGPROB, 75),
    ends: () => [["sure, 0", "transparent"], [`in doubt, −${LOWEST_LOGPROB} and below`, mixed("--doubt", 1, 75)]],
    note: () => "Under the sampler, in nats.",
  },
  advantage: {
    label: "advantage",
    known: (one) => one.advantage !== null,
    colour: (turn, at, one, strongest) => mixed(one.advantage < 0 ? "--bad" : "--good", Math.abs(one.advantage) / strongest, 60),
    ends: (strongest) => [[`worse than its siblings, ${shown(-strongest)}`, mixed("--bad", 1, 60)], ["", "transparent"], [`better, ${shown(strongest, 2, true)}`, mixed("--good", 1, 60)]],
    note: () => "As the update had it; one for all tokens of an episode.",
  },
  gap: {
    label: "log-prob gap",
    known: (one) => one.gap !== null,
    colour: (turn, at) => mixed(turn.gaps[at] < 0 ? "--less" : "--more", Math.abs(turn.gaps[at]) / 1e4 / WIDEST_GAP, 75),
    ends: () => [[`less likely, −${WIDEST_GAP}`, mixed("--less", 1, 75)], ["", "transparent"], [`likelier, +${WIDEST_GAP}`, mixed("--more", 1, 75)]],
    note: (one) => `Policy minus sampler, in nats; mean size ${shown(one.gap.mean, 4)}, largest ${shown(one.gap.largest, 4)}. ${one.gap.updates === 0
      ? "No update lies between the two, so this is how far engine and training forward disagree."
      : `The policy had moved by ${counted(one.gap.updates, "update")} since it sampled: that drift is in the gap, beside what engine and training forward disagree by.`}`,
  },
};

// Radio buttons and the legend of the chosen one; `choose` is called with another one's name.
function colouringBox(file, chosen, one, strongest, choose) {
  const radio = (name) => h("label", {}, h("input", { type: "radio", name: "colouring", value: name, checked: name === chosen,
    disabled: !file.colourings.includes(name), onchange: () => choose(name) }), COLOURINGS[name].label);
  return h("div", { class: "colouring-box" },
    h("fieldset", { class: "colouring" }, h("legend", {}, "colour words by"), Object.keys(COLOURINGS).map(radio)),
    COLOURINGS[chosen].known(one) ? scale(COLOURINGS[chosen], one, strongest) : h("p", { class: "scale-note" }, UNTRAINED));
}

function scale(colouring, one, strongest) {
  const ends = colouring.ends(strongest), colours = ends.map(([, colour]) => colour);
  return h("div", { class: "scale" }, h("span", {}, ends[0][0]),
    h("span", { class: "ramp", "aria-hidden": "true", style: { background: `linear-gradient(to right, ${colours.join(", ")})` } }),
    h("span", {}, ends[ends.length - 1][0]), h("span", { class: "scale-note" }, colouring.note(one)));
}

function responseView(text, turn, one, file, chosen, strongest) {
  if (!chosen) return h("p", { class: "said response" }, text);
  const { stop, logprobs } = turn, words = text.match(/\s+|[^\s]+/g) || [], tokens = logprobs.length - (stop === "stop" ? 1 : 0);
  const fits = file.words && words.filter((word) => word.trim()).length === tokens;
  const isKnown = COLOURINGS[chosen].known(one);
  const style = (at) => (isKnown ? { background: COLOURINGS[chosen].colour(turn, at, one, strongest) } : {});
  if (!fits && chosen === "advantage" && isKnown) return h("p", { class: "said response" }, h("span", { class: "word", style: style(0) }, text));
  if (!fits) return h("div", {}, h("p", { class: "said response" }, text), logprobs.length ? bars(turn, chosen === "gap" && isKnown) : null);
  let at = -1;
  const spans = words.map((word) => (word.trim() ? h("span", { class: "word", title: tokenTitle(turn, ++at), style: style(at) }, word) : word));
  const end = stop === "stop" ? h("span", { class: "word stop", title: `end of the response, ${tokenTitle(turn, ++at)}`, style: style(at) }, "■") : null;
  return h("p", { class: "said response" }, spans, " ", end);
}

function tokenTitle(turn, at) {
  const logprob = -turn.logprobs[at] / 100;
  const sampled = `log-prob ${shown(logprob)}, probability ${shown(Math.exp(logprob))}`;
  return turn.gaps.length ? `${sampled}; in the update gap ${gapText(turn.gaps[at])}` : sampled;
}

const gapText = (stored) => (stored === 0 ? "below 0.0001" : `${shown(stored / 1e4, 4, true)}, ratio ${shown(Math.exp(stored / 1e4), 3)}`);

// Of a log-prob, long where in doubt; of a gap, from the middle up where the token has become likelier, down where less likely.
function bars(turn, isGap) {
  const { logprobs, gaps } = turn, count = counted(logprobs.length, "token"), wide = Math.max(60, logprobs.length * 4);
  const rects = (isGap ? gaps : logprobs).map((stored, at) => {
    const height = Math.max(1, isGap ? Math.min(15, (Math.abs(stored) / 1e4 / WIDEST_GAP) * 15) : Math.min(30, stored / 15));
    const middle = { class: stored < 0 ? "less" : "more", y: stored < 0 ? 15 : 15 - height };
    return svg("rect", { x: at * 4, width: 3, height, ...(isGap ? middle : { y: 0 }) }, svg("title", {}, `token ${at}: ${tokenTitle(turn, at)}`));
  });
  const mean = shown(logprobs.reduce((sum, one) => sum + one, 0) / logprobs.length / -100);
  const caption = isGap ? `${count}; a bar for each, up where likelier, down where less likely` : `${count}, mean log-prob ${mean}; a bar for each, long where in doubt`;
  return h("div", { class: "bar-box" }, svg("svg", { class: "bars", viewBox: `0 0 ${wide} 30`, preserveAspectRatio: "none", role: "img", style: { width: `${wide}px` },
    "aria-label": `Log-prob${isGap ? " gap" : ""}s of ${count}` }, rects), h("p", { class: "faint" }, caption));
}
