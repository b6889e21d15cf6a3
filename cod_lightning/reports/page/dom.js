// Elements made of texts: data become text nodes and attributes, never markup.

// Line ends as newlines, other controls as pictures, what is unseen or no character as U+FFFD: as `visible` of markdown.py has it.
const printed = (text) =>
  text
    .replace(/\r\n?|[\x85\u2028\u2029]/g, "\n")
    .replace(/[\x00-\x08\x0b-\x1f]/g, (found) => String.fromCharCode(0x2400 + found.charCodeAt(0)))
    .replace(/\x7f/g, "␡")
    .replace(/[\x80-\x9f\u061c\u115f\u1160\u180e\u200e\u200f\u202a-\u202e\u2061-\u2064\u2066-\u206f\u3164\ud800-\udfff\ue000-\uf8ff]/gu, "\ufffd")
    .replace(/[\uffa0\ufff9-\ufffb\ufffe\uffff\u{e0000}-\u{e0fff}\u{f0000}-\u{10ffff}]/gu, "\ufffd");

const SVG = "http://www.w3.org/2000/svg";

function put(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.entries(value).forEach(([key, one]) => element.style.setProperty(key, one));
    else element.setAttribute(name, value === true ? "" : printed(String(value)));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(printed(String(child))));
  }
  return element;
}

const h = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);

// A link that saves what `draw` makes as a picture (SVG), in the colours and letters of the page.
function savedAs(name, label, draw) {
  const save = ({ currentTarget: link }) => {
    const picture = put(draw(), { xmlns: SVG }, []);
    picture.prepend(svg("style", {}, document.querySelector("style").textContent));
    link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(picture)], { type: "image/svg+xml" }));
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  return h("a", { href: "#", download: `${name.replace(/[^\w-]+/g, "_")}.svg`, title: "Save as a picture (SVG)", onclick: save }, label);
}

// JSON that was compressed and put into base64.
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

function refill(element, ...children) {
  element.replaceChildren();
  return put(element, {}, children);
}

// A number for people: at most `digits` behind the point, a real minus sign, tiny and huge ones as powers of ten.
function shown(value, digits = 2, sign = false) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  let text;
  if (size !== 0 && size < 0.5 * 10 ** -digits) {
    const power = Math.floor(Math.log10(size));
    text = `${(size / 10 ** power).toFixed(1)}e−${-power}`;
  } else if (size >= 10000) text = Math.round(size).toLocaleString("en");
  else text = size.toFixed(size >= 100 ? 0 : digits);
  return (value < 0 ? "−" : sign && value > 0 ? "+" : "") + text;
}

const counted = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
const interval = (bounds, sign) => (bounds ? `[${shown(bounds[0], 2, sign)}, ${shown(bounds[1], 2, sign)}]` : "");
