// Two entries compared word by word: what was kept, removed and added (longest common subsequence).

const MOST_CELLS = 4000000;

function difference(before, after) {
  const a = before.match(/\s+|[^\s]+/g) || [], b = after.match(/\s+|[^\s]+/g) || [];
  let start = 0, endA = a.length, endB = b.length;
  while (start < endA && start < endB && a[start] === b[start]) start++;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) { endA--; endB--; }
  const pieces = [["keep", a.slice(0, start)], ...middle(a.slice(start, endA), b.slice(start, endB)), ["keep", a.slice(endA)]];
  return merged(pieces.map(([kind, words]) => [kind, words.join("")]));
}

function middle(a, b) {
  if (a.length * b.length > MOST_CELLS) return [["del", a], ["ins", b]];
  const wide = b.length + 1, best = new Uint32Array((a.length + 1) * wide), pieces = [];
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      best[i * wide + j] = a[i] === b[j] ? best[(i + 1) * wide + j + 1] + 1 : Math.max(best[(i + 1) * wide + j], best[i * wide + j + 1]);
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { pieces.push(["keep", [a[i++]]]); j++; }
    else if (j === b.length || (i < a.length && best[(i + 1) * wide + j] >= best[i * wide + j + 1])) pieces.push(["del", [a[i++]]]);
    else pieces.push(["ins", [b[j++]]]);
  }
  return pieces;
}

// Neighbours of one kind together, and a lone space between two changes counted among them, so that phrases stay whole;
// but not after words that begin alike, such as 1=? and 1=up, which are one fact and its change.
function merged(pieces) {
  const out = [];
  let removed = "", added = "";
  const flush = () => {
    if (removed) out.push(["del", removed]);
    if (added) out.push(["ins", added]);
    removed = added = "";
  };
  pieces.filter(([, text]) => text).forEach(([kind, text], index, all) => {
    const isFact = removed.length > 1 && removed.slice(0, 2) === added.slice(0, 2), next = all[index + 1];
    const isBridge = kind === "keep" && text === " " && (removed || added) && !isFact && next && next[0] !== "keep";
    if (kind === "del" || isBridge) removed += text;
    if (kind === "ins" || isBridge) added += text;
    if (kind !== "keep" || isBridge) return;
    flush();
    out.push([kind, text]);
  });
  flush();
  return out;
}

const ENTRY_SIGNS = { kept: " ", removed: "\u2212", added: "+", replaced: "~" };

// The entries of a context before and after an update; of a replaced one, its words.
function entriesView(changes) {
  if (!changes.length) return h("p", { class: "context" }, h("em", {}, "(empty)"));
  const entry = ([kind, before, after]) => h("li", { class: kind, title: kind }, h("span", { class: "entry-sign", "aria-hidden": "true" }, ENTRY_SIGNS[kind]),
    h("span", {}, kind === "kept" ? after : difference(before, after).map(([part, text]) => (part === "keep" ? text : h(part, {}, text)))));
  const count = (kind) => changes.filter(([one]) => one === kind).length;
  const counts = Object.keys(ENTRY_SIGNS).filter(count).map((kind) => `${count(kind)} ${kind}`);
  return [h("ul", { class: "context entries" }, changes.map(entry)),
    h("p", { class: "faint" }, count("kept") === changes.length ? "unchanged" : `Entries: ${counts.join(", ")}.`)];
}
