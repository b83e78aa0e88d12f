// The studio's page: four tabs over a small JSON interface. Text goes in as text, never as markup.

import { drawBars, drawLines, shorten } from "./plots.js";

const find = (id) => document.getElementById(id);

function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

async function ask(path, form, signal) {
  const request = form === undefined ? {} : {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(form),
  };
  const response = await fetch(path, { ...request, signal });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.error), { field: answer.field });
  return answer;
}

// --- the form -------------------------------------------------------------------------------------------------------

const required = (form) => form.mode === "requirements";
const isPrivate = (form) => required(form) && form.privacy === "budget";
const byHand = (form) => form.mode === "hand";
const spread = (kind) => (form) => required(form) && (kind === "range" ? ["log-even", "even"].includes(form.rates_kind) : form.rates_kind === kind);

const FIELDS = [
  { group: "Who", name: "mode", label: "Choose by", kind: "select", value: "requirements", options: { requirements: "requirements: find the best plan", hand: "hand: classes and levels" } },
  { group: "Who", name: "rates_kind", label: "Upload rates", kind: "select", value: "log-even", when: required,
    options: { "log-even": "spread evenly, by factors", even: "spread evenly", lognormal: "log-normal", list: "a list" } },
  { group: "Who", name: "users", label: "Users", value: 96, least: 4, most: 10000, log: true, whole: true, when: (form) => required(form) && form.rates_kind !== "list" },
  { group: "Who", name: "slowest", label: "Slowest", unit: "Mb/s", value: 1, least: 0.1, most: 100, log: true, when: spread("range") },
  { group: "Who", name: "fastest", label: "Fastest", unit: "Mb/s", value: 20, least: 0.1, most: 1000, log: true, when: spread("range") },
  { group: "Who", name: "median", label: "Median", unit: "Mb/s", value: 4, least: 0.1, most: 100, log: true, when: spread("lognormal") },
  { group: "Who", name: "spread", label: "Spread", unit: "sigma", value: 0.7, least: 0, most: 2, when: spread("lognormal") },
  { group: "Who", name: "rates", label: "Rates, Mb/s", kind: "area", value: "1 x 24, 2 x 24, 4 x 24, 8 x 24", when: spread("list") },
  { group: "Who", name: "classes", label: "Users per class, slowest first", kind: "text", value: "24, 24, 24, 24", when: byHand },
  { group: "Who", name: "class_rates", label: "Upload of each class, Mb/s", kind: "text", value: "1, 2, 4, 8", when: byHand },
  { group: "Design", name: "levels", label: "Quantizer levels per class", kind: "text", value: "2, 6, 8, 12", when: byHand },
  { group: "Design", name: "subgroup_size", label: "Subgroup size", value: 8, least: 2, most: 200, log: true, whole: true, when: byHand },
  { group: "Design", name: "design", label: "Design", kind: "select", value: "perfect", when: byHand,
    options: { perfect: "perfect", paper: "paper", "paper-composite": "paper-composite", secagg: "secagg", multigroup: "multigroup" } },
  { group: "Design", name: "fill_levels", label: "Fill the rings with levels", kind: "check", value: true, when: byHand },
  { group: "Upload", name: "dimension", label: "Model size", unit: "elements", value: 79510, least: 100, most: 1e9, log: true, whole: true },
  { group: "Upload", name: "limit", label: "Limit", kind: "select", value: "deadline", options: { deadline: "a deadline", bits: "a number of bits" } },
  { group: "Upload", name: "deadline", label: "Deadline", unit: "s", value: 0.8, least: 0.05, most: 100, log: true, when: (form) => form.limit === "deadline" },
  { group: "Upload", name: "bits", label: "Bits of an upload", value: 800000, least: 1000, most: 1e10, log: true, whole: true, when: (form) => form.limit === "bits" },
  { group: "What may go wrong", name: "dropout", label: "Dropout", unit: "fraction of users", value: 0.1, least: 0, most: 0.49 },
  { group: "What may go wrong", name: "corrupt", label: "Corrupt users", unit: "fraction of users", value: 0, least: 0, most: 0.49, when: required },
  { group: "What may go wrong", name: "attackers", label: "Attackers to tolerate", value: 2, least: 0, most: 15, whole: true },
  { group: "What may go wrong", name: "colluders", label: "Colluders with the server", value: 1, least: 0, most: 50, whole: true, when: byHand },
  { group: "What may go wrong", name: "min_survivors", label: "Least survivors", unit: "survivors of a block", value: 3, least: 2, most: 50, whole: true },
  { group: "Privacy", name: "privacy", label: "Noise inside the sums", kind: "select", value: "off", when: required,
    options: { off: "none", budget: "within a privacy budget" } },
  { group: "Privacy", name: "epsilon", label: "Epsilon", unit: "of all rounds", value: 8, least: 0.5, most: 16, log: true, when: isPrivate },
  { group: "Privacy", name: "delta", label: "Delta", value: 1e-5, least: 1e-9, most: 1e-2, log: true, when: isPrivate },
  { group: "Privacy", name: "rounds", label: "Rounds", value: 20, least: 1, most: 1000, log: true, whole: true, when: isPrivate },
  { group: "Privacy", name: "clip", label: "Clipping norm", value: 1, least: 0.01, most: 100, log: true, when: isPrivate },
  { group: "More", name: "most_subgroups", label: "Subgroups, at most", value: 16, least: 2, most: 64, whole: true, when: required },
  { group: "More", name: "most_classes", label: "Classes, at most", value: 6, least: 1, most: 20, whole: true, when: required },
  { group: "More", name: "value_range", label: "Three standard deviations of a value", value: 1, least: 0.001, most: 100, log: true },
  { group: "More", name: "ranges", label: "Ranges", kind: "select", value: "levels", options: { levels: "by level", single: "one for all, as in the paper" } },
  { group: "More", name: "max_weight", label: "Largest weight of a user", value: 1, least: 1, most: 1000, log: true, whole: true },
];

const form = Object.fromEntries(FIELDS.map((field) => [field.name, field.value]));

const toSlider = (field, value) => field.log
  ? (1000 * Math.log(Math.max(value, field.least) / field.least)) / Math.log(field.most / field.least)
  : (1000 * (value - field.least)) / (field.most - field.least);

function fromSlider(field, place) {
  const fraction = place / 1000;
  const value = field.log ? field.least * (field.most / field.least) ** fraction : field.least + fraction * (field.most - field.least);
  return field.whole ? Math.round(value) : Number(value.toPrecision(3));
}

function makeField(field) {
  const id = `f-${field.name}`;
  const label = make("label", { for: id }, field.label, field.unit ? make("small", {}, `, ${field.unit}`) : "");
  const row = make("div", { class: "field", id: `row-${field.name}` }, label);
  const change = (value) => { form[field.name] = value; changed(); };
  if (field.kind === "select") {
    const options = Object.entries(field.options).map(([value, words]) => make("option", { value }, words));
    label.className = "wide";
    row.append(make("select", { id, class: "wide", onchange: (event) => change(event.target.value) }, ...options));
  } else if (field.kind === "check") {
    row.append(make("input", { id, type: "checkbox", onchange: (event) => change(event.target.checked) }));
  } else if (field.kind === "text" || field.kind === "area") {
    label.className = "wide";
    const box = make(field.kind === "area" ? "textarea" : "input", { id, class: "wide", spellcheck: "false", oninput: (event) => change(event.target.value) });
    box.value = field.value;
    row.append(box);
  } else {
    const box = make("input", { id, type: "number", step: "any", min: field.least, inputmode: "decimal" });
    const slider = make("input", { type: "range", min: 0, max: 1000, class: "wide", "aria-label": `${field.label}, slider` });
    const tell = () => slider.setAttribute("aria-valuetext", `${box.value} ${field.unit || ""}`);
    box.value = field.value;
    slider.value = toSlider(field, field.value);
    box.addEventListener("input", () => { slider.value = toSlider(field, Number(box.value)); tell(); change(box.value === "" ? null : Number(box.value)); });
    slider.addEventListener("input", () => { box.value = fromSlider(field, Number(slider.value)); tell(); change(Number(box.value)); });
    tell();
    row.append(box, slider);
  }
  row.append(make("span", { class: "fault", hidden: true }));
  return row;
}

function makeForm() {
  for (const group of new Set(FIELDS.map((field) => field.group))) {
    const rows = FIELDS.filter((field) => field.group === group).map(makeField);
    find("form").append(group === "More"
      ? make("details", {}, make("summary", {}, group), ...rows)
      : make("fieldset", {}, make("legend", {}, group), ...rows));
  }
  find("form").addEventListener("submit", (event) => event.preventDefault());
  showFields();
}

function showFields() {
  for (const field of FIELDS) find(`row-${field.name}`).hidden = Boolean(field.when) && !field.when(form);
  for (const group of find("form").children) group.hidden = [...group.querySelectorAll(".field")].every((row) => row.hidden);
}

/** What the page sends: the fields that are shown. */
const filled = () => Object.fromEntries(FIELDS.filter((field) => !field.when || field.when(form)).map((field) => [field.name, form[field.name]]));

function blame(field, words) {
  for (const row of find("form").querySelectorAll(".field")) {
    const wrong = field !== null && row.id === `row-${field.split("[")[0]}`;
    const fault = row.querySelector(".fault");
    row.querySelector("input, select, textarea").setAttribute("aria-invalid", String(wrong));
    fault.hidden = !wrong;
    fault.textContent = wrong ? words : "";
  }
}

// --- the plan -------------------------------------------------------------------------------------------------------

let plan = null, planForm = null, curve = null, waiting = 0, asking = null, exported = "toml";

function changed() {
  showFields();
  find("planned").setAttribute("aria-busy", "true");
  clearTimeout(waiting);
  waiting = setTimeout(refresh, 180);
}

async function refresh() {
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking, sent = filled();
  try {
    plan = await ask("/api/plan", sent, signal);
    planForm = sent;
    curve = null;
    blame(null);
    find("problem").hidden = true;
    showPlan();
    find("planned").setAttribute("aria-busy", "false");
    curve = await ask("/api/trade-off", sent, signal);
    showCurve();
  } catch (error) {
    if (error.name === "AbortError") return;
    blame(error.field ?? null, error.message);
    find("problem").textContent = error.message;
    find("problem").hidden = false;
    find("planned").setAttribute("aria-busy", "false");
  }
}

function showPlan() {
  const { classes, warnings } = plan;
  const slow = Math.max(...classes.map((one) => one.seconds)), large = Math.max(...classes.map((one) => one.bytes));
  const numbers = {
    Users: plan.users.toLocaleString("en"), Subgroups: plan.subgroups.length, Segments: plan.segments.length,
    "Largest upload": `${shorten(large / 1000)} kB`, "Slowest upload": `${shorten(slow)} s`, "Error bound": shorten(plan.error),
    ...(plan.privacy === null ? {} : {
      "Epsilon, all sums": shorten(plan.privacy.epsilon_server), "Epsilon, models only": shorten(plan.privacy.epsilon_model),
      "Off by, clipping norms": shorten(plan.privacy.error), "Noise, clipping norms": shorten(plan.privacy.noise_multiplier),
      "Honest survivors of a block": plan.privacy.honest,
    }),
    Robustness: plan.guarantees[0].value, "Attackers tolerated": `${plan.attackers.tolerated} (want ${plan.attackers.wanted})`,
  };
  find("figures").replaceChildren(...Object.entries(numbers).map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, String(value)))));
  const said = [...(plan.problem ? [`No plan meets all requirements: ${plan.problem}. This is the nearest one.`] : []), ...warnings];
  find("warnings").replaceChildren(...said.map((words) => make("p", { class: "warning" }, words)));
  find("notes").replaceChildren(...plan.notes.map((note) => make("li", {}, note)));
  showMatrix();
  showBars();
  showCurve();
  showGuarantees();
  showExport();
  picked.clear(); malicious.clear(); lost.clear();
  if (current() === "attack") showAttack();
}

const colourOf = (segment) => {
  const colours = new Array(plan.subgroups.length);
  segment.blocks.forEach((block, at) => block.subgroups.forEach((subgroup) => { colours[subgroup] = `p${at % 12}`; }));
  return colours;
};
const blockOf = (row, subgroup) => plan.segments[row].blocks.find((block) => block.subgroups.includes(subgroup));
const edge = (subgroup) => (subgroup && plan.subgroups[subgroup].class !== plan.subgroups[subgroup - 1].class ? "edge" : "");
const wideness = () => `matrix ${plan.subgroups.length > 40 ? "widest-design" : plan.subgroups.length > 24 ? "wide-design" : ""}`;

function cellsOf(row, decorate = () => "") {
  const colours = colourOf(plan.segments[row]);
  return plan.subgroups.map((_, subgroup) => {
    const { subgroups } = blockOf(row, subgroup);
    const text = subgroups.length === 1 && plan.subgroups.length > 1 ? "*" : String(Math.min(...subgroups));
    return make("td", { class: `${colours[subgroup]} ${edge(subgroup)} ${decorate(subgroup)}`, "data-row": row, "data-column": subgroup }, text);
  });
}

function showMatrix() {
  const heads = plan.subgroups.map((_, subgroup) => make("th", { scope: "col", class: edge(subgroup) }, String(subgroup)));
  const rows = plan.segments.map((_, row) => make("tr", {}, make("th", { scope: "row" }, String(row)), ...cellsOf(row)));
  const table = make("table", { class: wideness(), role: "grid", "aria-label": "Design: segments by subgroups" },
    make("thead", {}, make("tr", {}, make("th", { class: "corner" }, "segment"), ...heads)), make("tbody", {}, ...rows));
  const cells = (row, column) => table.querySelector(`td[data-row="${row}"][data-column="${column}"]`);
  const tell = (event) => {
    const cell = event.target.closest("td");
    if (!cell) return;
    const row = Number(cell.dataset.row), column = Number(cell.dataset.column);
    for (const old of table.querySelectorAll(".with")) old.classList.remove("with");
    for (const subgroup of blockOf(row, column).subgroups) cells(row, subgroup).classList.add("with");
    find("cell").textContent = describeCell(row, column);
  };
  table.addEventListener("mouseover", tell);
  table.addEventListener("focusin", tell);
  table.addEventListener("keydown", (event) => {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const cell = event.target.closest("td");
    if (!move || !cell) return;
    event.preventDefault();
    const next = cells(Number(cell.dataset.row) + move[0], Number(cell.dataset.column) + move[1]);
    if (!next) return;
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  cells(0, 0).tabIndex = 0;
  find("matrix").replaceChildren(table);
  find("cell").textContent = "Point at a cell, or move over them with the arrow keys.";
}

function describeCell(row, column) {
  const segment = plan.segments[row], block = blockOf(row, column);
  const named = (subgroup) => `subgroup ${subgroup} (class ${plan.subgroups[subgroup].class}, ${plan.subgroups[subgroup].who})`;
  const others = block.subgroups.filter((subgroup) => subgroup !== column);
  const company = others.length === 0 ? "alone" : others.length === 1 ? `with ${named(others[0])}` : `with all ${others.length} other subgroups`;
  const learns = others.length === 0 ? `this subgroup's sum here, of ${block.users} users` : `the sum of these ${block.users} users, and nothing of a part of them`;
  const last = segment.start + segment.size - 1;
  return `Segment ${row}, elements ${segment.start.toLocaleString("en")} to ${last.toLocaleString("en")}: ${named(column)} codes ${company}, `
    + `at ${block.level.toLocaleString("en")} levels in ${block.bits} bits an element, from ${shorten(block.range[0])} to ${shorten(block.range[1])}. The server learns ${learns}.`;
}

function showBars() {
  const names = plan.classes.map((one, index) => (plan.classes.length > 7 ? String(index) : `${index}: ${shorten(one.rate)}`));
  const xLabel = plan.classes.length > 7 ? "class" : "class: Mb/s of its slowest user";
  drawBars(find("bytes"), names, [
    { label: "masked", colour: 0, values: plan.classes.map((one) => one.bytes / 1000) },
    { label: "levels in plaintext", colour: 6, values: plan.classes.map((one) => one.plaintext_bytes / 1000) },
  ], { title: "Upload of a user by class", xLabel, yLabel: "kB a round", unit: "kB" });
  const guide = plan.deadline ? { value: plan.deadline, label: `deadline ${shorten(plan.deadline)} s` } : null;
  drawBars(find("seconds"), names, [{ label: "", colour: 2, values: plan.classes.map((one) => one.seconds) }],
    { title: "Seconds to upload by class", xLabel, yLabel: "seconds", unit: "s", guide });
}

function showPrivacyCurve() {
  const { privacy } = plan;
  find("curve-title").textContent = "Error against epsilon";
  find("binding").textContent = `What is claimed: ${privacy.statement}. The mean of all users is off by ${shorten(privacy.error)} clipping norms; `
    + `up to 1 costs some points of accuracy, beyond ${privacy.useless} much of it is lost.`;
  if (curve === null) return;
  drawLines(find("curve"), curve.curves.map((points, at) => ({ label: curve.names[at], colour: 2 * at, points })), {
    title: "Error of the mean against epsilon", xLabel: `epsilon of ${privacy.rounds} rounds at delta ${shorten(privacy.delta)}`,
    yLabel: "error, clipping norms", xLog: true, yLog: true, height: 260,
    guide: { value: privacy.useless, label: "much accuracy is lost" },
    mark: { at: curve.chosen, label: `this plan: ${shorten(curve.chosen[1])} at epsilon ${shorten(curve.chosen[0])}`, below: true },
  });
}

function showCurve() {
  if (plan.privacy !== null) return showPrivacyCurve();
  const { proposal } = plan;
  find("curve-title").textContent = "Error against deadline";
  find("binding").textContent = proposal === null
    ? "The line is the best plan for these users at each deadline; the point is yours."
    : [`No plan of these subgroup sizes is below ${shorten(proposal.lower_bound)}.`,
      ...(proposal.relaxing.length ? [] : [`What binds: ${proposal.binding}.`]),
      ...proposal.relaxing.map((one) => `With ${one.what} the bound would be ${shorten(one.error)}.`)].join(" ");
  if (curve === null) return;
  const usable = curve.curve.map(([deadline, error]) => [deadline, error === null || error <= 0 ? null : error]);
  drawLines(find("curve"), [{ label: "", colour: 0, points: usable }], {
    title: "Error bound against deadline", xLabel: "deadline for the upload, s", yLabel: "error bound", xLog: true, yLog: true, height: 260,
    mark: { at: curve.chosen, label: `this plan: ${shorten(curve.chosen[1])} at ${shorten(curve.chosen[0])} s` },
  });
}

function showGuarantees() {
  const rows = plan.guarantees.map((one) => make("tr", {},
    make("th", { scope: "row" }, one.name), make("td", {}, make("strong", {}, one.value)), make("td", {}, one.words),
    make("td", {}, one.claim === null ? "nothing" : make("span", {},
      make("span", { class: `mark ${one.holds ? "holds" : "fails"}` }, one.holds ? "holds. " : "does not hold. "), one.claim))));
  find("guarantees").tBodies[0].replaceChildren(...rows);
}

function showExport() {
  const text = plan.exports[exported];
  for (const button of document.querySelectorAll("[data-export]")) button.setAttribute("aria-pressed", String(button.dataset.export === exported));
  find("export").textContent = text;
  URL.revokeObjectURL(find("download").href);
  find("download").href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  find("download").download = { toml: "plan.toml", command: "plan.sh", python: "plan.py" }[exported];
}

// --- attacks --------------------------------------------------------------------------------------------------------

const picked = new Set(), malicious = new Set(), lost = new Set();
let attacking = null;

const toggle = (set, value) => (set.has(value) ? set.delete(value) : set.add(value));

async function showAttack(worst = 0) {
  if (plan === null) return;
  attacking?.abort();
  attacking = new AbortController();
  try {
    const found = await ask("/api/attack", {
      plan: planForm, subgroups: [...picked], malicious: [...malicious], lost: [...lost], worst,
    }, attacking.signal);
    if (worst) { malicious.clear(); found.spoiled.malicious.forEach((one) => malicious.add(one)); }
    drawAttack(found);
  } catch (error) {
    if (error.name !== "AbortError") find("decode-words").textContent = error.message;
  }
}

function drawAttack({ decoded, spoiled }) {
  const shown = new Set(decoded.segments);
  const gone = (subgroup) => (lost.has(subgroup) ? "gone" : "");
  const chips = plan.subgroups.map((_, subgroup) => chip(lost, subgroup, `subgroup ${subgroup} dropped out`));
  find("lost").replaceChildren(...chips);
  replaceTable("decode", attackTable("A curious server", picked, (row) => ({
    faint: decoded.proper && !shown.has(row),
    words: !decoded.proper ? "" : shown.has(row) ? "shown" : "hidden",
    decorate: (subgroup) => `${gone(subgroup)} ${picked.has(subgroup) ? "picked" : ""}`,
  })));
  find("decode-words").textContent = decoded.words;
  replaceTable("spoil", attackTable("Malicious users", malicious, (row) => {
    const { blocks, spoiled: bad, holds } = spoiled.segments[row];
    const hit = new Set(bad.flat());
    return {
      faint: false,
      words: `${bad.length} of ${blocks}${holds ? "" : ": falls"}`,
      decorate: (subgroup) => `${gone(subgroup)} ${hit.has(subgroup) ? "spoiled" : ""}`,
    };
  }));
  find("spoil-words").textContent = spoiled.words;
}

/** Put a table in the old one's place, and the focus where it was. */
function replaceTable(id, table) {
  const label = document.activeElement?.closest(`#${id}`) ? document.activeElement.getAttribute("aria-label") : null;
  find(id).replaceChildren(table);
  if (label) [...table.querySelectorAll("button")].find((button) => button.getAttribute("aria-label") === label)?.focus();
}

function chip(set, subgroup, label) {
  return make("button", {
    type: "button", "aria-pressed": String(set.has(subgroup)), "aria-label": label, title: plan.subgroups[subgroup].who,
    onclick: () => { toggle(set, subgroup); showAttack(); },
  }, String(subgroup));
}

function attackTable(label, set, rowOf) {
  const heads = plan.subgroups.map((_, subgroup) => make("th", { scope: "col", class: edge(subgroup) }, chip(set, subgroup, `${label}: subgroup ${subgroup}`)));
  const rows = plan.segments.map((_, row) => {
    const { faint, words, decorate } = rowOf(row);
    return make("tr", { class: faint ? "faint" : "" }, make("th", { scope: "row" }, String(row)), ...cellsOf(row, decorate), make("th", {}, words));
  });
  return make("table", { class: wideness(), "aria-label": label }, make("thead", {}, make("tr", {}, make("th", {}, ""), ...heads, make("th", {}, ""))), make("tbody", {}, ...rows));
}

// --- runs -----------------------------------------------------------------------------------------------------------

const chosen = new Set(), runs = new Map();
let stream = null, comparing = 0;

function followRuns() {
  stream?.close();
  const query = [...chosen].map((name) => `run=${encodeURIComponent(name)}`).join("&");
  stream = new EventSource(`/api/events?${query}`);
  stream.addEventListener("list", (event) => showListing(JSON.parse(event.data).runs));
  stream.addEventListener("run", (event) => { const run = JSON.parse(event.data); runs.set(run.name, run); showRuns(); });
  stream.addEventListener("rounds", (event) => {
    const fresh = JSON.parse(event.data), run = runs.get(fresh.name);
    if (!run) return;
    const points = new Map(run.points.map((point) => [point.round, point]));
    fresh.points.forEach((point) => points.set(point.round, point));
    runs.set(fresh.name, { ...fresh, points: [...points.values()] });
    showRuns();
  });
  stream.addEventListener("error", () => { find("live").textContent = "The studio does not answer; trying again."; });
}

function showListing(listing) {
  const running = listing.filter((run) => !run.problem && !run.finished).length;
  find("live").textContent = listing.length === 0
    ? "No runs in this folder yet. Start one with heterosag train --out FOLDER/NAME; it appears here by itself."
    : `${listing.length} runs, ${running} not finished. Figures follow as rounds are written.`;
  if (chosen.size === 0) {
    const usable = listing.filter((run) => !run.problem).slice(0, 3);
    usable.forEach((run) => chosen.add(run.name));
    if (usable.length) followRuns();
  }
  const focused = document.activeElement?.id;
  find("listing").replaceChildren(...listing.map((run, at) => {
    const box = make("input", { type: "checkbox", id: `run-${at}`, value: run.name, disabled: Boolean(run.problem), onchange: pickRun });
    box.checked = chosen.has(run.name);
    const rate = run.accuracy === null || run.accuracy === undefined ? "" : `, ${(100 * run.accuracy).toFixed(1)}%`;
    const words = run.problem ? run.problem : `${run.finished ? "" : "running, "}${run.rounds} of ${run.planned ?? "?"} rounds${rate}`;
    return make("label", { for: `run-${at}` }, box, make("span", {}, run.name, " ", make("small", { class: run.finished || run.problem ? "" : "dot-live" }, words)));
  }));
  if (focused) find(focused)?.focus();
}

function pickRun(event) {
  const { value, checked } = event.target;
  if (checked && chosen.size >= 8) { event.target.checked = false; return; }
  if (checked) chosen.add(value); else { chosen.delete(value); runs.delete(value); }
  followRuns();
  showRuns();
}

function showRuns() {
  const shown = [...chosen].filter((name) => runs.has(name)).map((name, at) => ({ ...runs.get(name), colour: at % 8 }));
  const lines = (x, y, step) => shown.map((run) => ({ label: run.name, colour: run.colour, step, points: run.points.map((point) => [x(point), y(point)]) }));
  const percent = (point) => (point.accuracy === null ? null : 100 * point.accuracy);
  const empty = "Pick a run above.";
  const accuracy = { yLabel: "test accuracy, %", low: 0, high: 100, empty };
  drawLines(find("accuracy-rounds"), lines((point) => point.round, percent), { ...accuracy, title: "Accuracy over rounds", xLabel: "round", wholeX: true });
  drawLines(find("accuracy-time"), lines((point) => point.seconds, percent), { ...accuracy, title: "Accuracy over communication time", xLabel: "communication time, s" });
  drawLines(find("survivors"), lines((point) => point.round, (point) => point.survivors, true), { title: "Survivors", xLabel: "round", yLabel: "users", low: 0, wholeX: true, wholeY: true, empty });
  drawLines(find("refusals"), lines((point) => point.round, (point) => point.refusals, true), { title: "Messages refused", xLabel: "round", yLabel: "messages", low: 0, wholeX: true, wholeY: true, empty });
  const classes = Math.max(0, ...shown.map((run) => Math.max(0, ...run.points.map((point) => point.bytes.length))));
  const mean = (run, index) => {
    const sizes = run.points.map((point) => point.bytes[index]).filter((size) => size > 0);
    return sizes.length ? sizes.reduce((sum, size) => sum + size, 0) / sizes.length / 1000 : 0;
  };
  const names = Array.from({ length: classes }, (_, index) => `class ${index}`);
  drawBars(find("run-bytes"), names, classes ? shown.map((run) => ({ label: run.name, colour: run.colour, values: names.map((_, index) => mean(run, index)) })) : [],
    { title: "Bytes a user sends in a round", xLabel: "class, slowest first", yLabel: "kB a round", unit: "kB", empty });
  const failed = shown.flatMap((run) => run.points.filter((point) => point.error).map((point) => `${run.name}, round ${point.round}: ${point.error}`));
  find("failed").replaceChildren(...failed.slice(0, 10).map((words) => make("li", {}, words)));
  find("failed-title").textContent = failed.length > 10 ? `Rounds that failed: the first 10 of ${failed.length}` : "Rounds that failed";
  find("failed-rounds").hidden = failed.length === 0;
  clearTimeout(comparing);
  comparing = setTimeout(showCompared, 250, shown.map((run) => run.name));
}

async function showCompared(names) {
  if (!names.length) { find("compared").replaceChildren(); return; }
  try {
    const { rows } = await ask(`/api/compare?${names.map((name) => `run=${encodeURIComponent(name)}`).join("&")}`);
    find("compared").replaceChildren(
      make("thead", {}, make("tr", {}, make("th", {}, ""), ...names.map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row.name), ...row.cells.map((cell) => make("td", {}, cell))))));
  } catch (error) {
    find("compared").replaceChildren(make("caption", {}, error.message));
  }
}

// --- a round --------------------------------------------------------------------------------------------------------

let told = null, place = 0;

async function runRound() {
  const phase = find("drop-phase").value;
  const body = { watched: Number(find("watched").value), identities: find("identities").checked };
  if (phase) body[`gone_${phase}`] = [Number(find("dropping").value)];
  try {
    told = await ask("/api/round", body);
    find("round-problem").hidden = told.error === null;
    find("round-problem").textContent = told.error === null ? "" : `${told.error.kind}: ${told.error.message}`;
    place = 0;
    showStep();
  } catch (error) {
    find("round-problem").hidden = false;
    find("round-problem").textContent = error.message;
  }
}

function showStep() {
  const titles = [...told.steps.map((step) => step.phase), ...(told.result ? ["result"] : [])];
  place = Math.max(0, Math.min(place, titles.length - 1));
  find("steps").replaceChildren(...titles.map((title, at) => make("li", {}, make("button", {
    type: "button", "aria-pressed": String(at === place), onclick: () => { place = at; showStep(); },
  }, `${at + 1}. ${title}`))));
  find("before").disabled = place === 0;
  find("next").disabled = place === titles.length - 1;
  const parts = place < told.steps.length ? stepParts(told.steps[place]) : resultParts(told.result);
  find("step").replaceChildren(...parts);
  if (place < told.steps.length) drawTraffic(told.steps[place]);
}

function listOf(title, lines) {
  return make("article", {}, make("h3", {}, title), make("ul", {}, ...lines.map((line) => make("li", {}, line))));
}

function table(head, rows) {
  return make("div", { class: "scroll" }, make("table", { class: "rows" },
    make("thead", {}, make("tr", {}, ...head.map((words) => make("th", { scope: "col" }, words)))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", { class: typeof cell === "number" ? "number" : "mono" }, String(cell))))))));
}

function stepParts(step) {
  const watched = find("watched").value;
  const knows = make("div", { class: "knows" }, listOf("The server knows", step.server_knows ?? []), listOf(`User ${watched} knows`, step.user_knows ?? []));
  const gone = step.gone.length ? ` Gone: user ${step.gone.join(", ")}.` : "";
  const parts = [
    make("article", {}, make("h3", {}, step.title), make("p", { class: "lead" }, step.words + gone), make("div", { id: "traffic", class: "plot" })),
    knows,
    make("article", {}, make("h3", {}, `What user ${watched} sends`), table(["part", "bytes", "begins with"], step.message.map((part) => [part.name, part.bytes, part.shown]))),
  ];
  if (step.vector) {
    parts.push(make("article", {}, make("h3", {}, "The vector's way"),
      make("p", { class: "lead" }, "The first elements of each segment: as trained, as levels, and as the server gets them."),
      table(["segment", "codes with", "levels, bits", "trained", "level", "masked"], step.vector.map((cell) => [
        cell.segment, `subgroups ${cell.block.join(" + ")}`, `${cell.level}, ${cell.bits}`, cell.true.join("  "), cell.levels.join("  "), cell.masked.join("  ")]))));
  }
  return parts;
}

function drawTraffic(step) {
  drawBars(find("traffic"), step.up.map((_, user) => String(user)), [
    { label: "user to server", colour: 0, values: step.up }, { label: "server to user", colour: 3, values: step.down },
  ], { title: "Bytes that cross in this phase", xLabel: "user", yLabel: "bytes", unit: "bytes", height: 200 });
}

function resultParts(result) {
  return [
    make("article", {}, make("h3", {}, "What came out"),
      make("p", {}, `${result.survivors.length} survivors. The mean that the server decoded is at most ${shorten(result.largest_distance)} from the true mean of their updates: that is rounding to levels, the sums themselves are exact.`),
      table(["", "first elements"], [["decoded mean", result.mean.slice(0, 8).join("  ")], ["true mean", result.true.slice(0, 8).join("  ")]])),
    make("article", {}, make("h3", {}, "All that the server has seen in plaintext"),
      table(["segment", "subgroups", "survivors", "sum of levels, first elements"], result.blocks.map((block) => [block.segment, block.subgroups.join(" + "), block.survivors, block.sums.join("  ")]))),
  ];
}

// --- tabs -----------------------------------------------------------------------------------------------------------

const TABS = ["plan", "attack", "runs", "round"];
const current = () => (TABS.includes(location.hash.slice(1)) ? location.hash.slice(1) : "plan");

function showTab() {
  for (const tab of TABS) {
    find(`tab-${tab}`).hidden = tab !== current();
    const link = document.querySelector(`nav a[href="#${tab}"]`);
    if (tab === current()) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  if (current() === "plan" && plan) { showBars(); showCurve(); }
  if (current() === "attack") showAttack();
  if (current() === "runs") { followRuns(); showRuns(); } else { stream?.close(); stream = null; }
  if (current() === "round") { if (told) showStep(); else runRound(); }
}

function start() {
  makeForm();
  for (const id of ["watched", "dropping"]) find(id).append(...Array.from({ length: 12 }, (_, user) => make("option", { value: user }, String(user))));
  find("dropping").value = "5";
  for (const button of document.querySelectorAll("[data-export]")) button.addEventListener("click", () => { exported = button.dataset.export; showExport(); });
  find("copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(find("export").textContent);
    find("copy").textContent = "Copied";
    setTimeout(() => { find("copy").textContent = "Copy"; }, 1500);
  });
  find("place").addEventListener("click", () => showAttack(Math.min(Number(find("worst").value) || 0, plan.subgroups.length)));
  find("round-form").addEventListener("submit", (event) => { event.preventDefault(); runRound(); });
  find("before").addEventListener("click", () => { place -= 1; showStep(); });
  find("next").addEventListener("click", () => { place += 1; showStep(); });
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); find("main").focus(); });
  window.addEventListener("hashchange", showTab);
  let resized = 0;
  window.addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(showTab, 200); });
  showTab();
  refresh();
}

start();
