// The studio's page: four tabs over a small JSON interface. This file has the Plan and Attack tabs, and the address.

import { ask, copy, find, make } from "./dom.js";
import { blame, filled, fromQuery, makeForm, toQuery } from "./form.js";
import { drawBars, drawLines, shorten } from "./plots.js";
import { showRound, startRound } from "./round.js";
import { followRuns, runsFromQuery, runsToQuery, showRuns, startRuns, stopFollowing } from "./runs.js";

// --- the plan -------------------------------------------------------------------------------------------------------

let plan = null, planForm = null, curve = null, waiting = 0, asking = null, exported = "toml";

/** What is shown no longer answers the form: dimmed until the answer is there. */
function markStale(busy) {
  find("planned").setAttribute("aria-busy", String(busy));
  find("planned").classList.add("stale");
  find("curve-card").classList.add("stale");
}

function changed() {
  for (const set of Object.values(SETS)) set.clear();
  markStale(true);
  remember();
  clearTimeout(waiting);
  waiting = setTimeout(refresh, 180);
}

/** Ask for the plan of the form, then for its curve; whatever was asked before is dropped. */
async function refresh() {
  clearTimeout(waiting);
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking, sent = filled();
  markStale(true);
  try {
    const found = await ask("/api/plan", sent, signal);
    plan = found;
    planForm = sent;
    curve = null;
    blame(null);
    find("problem").hidden = true;
    showPlan();
    find("planned").classList.remove("stale");
    find("planned").setAttribute("aria-busy", "false");
    remember();
    const traced = await ask("/api/trade-off", sent, signal);
    curve = traced;
    showCurve();
    find("curve-card").classList.remove("stale");
  } catch (error) {
    if (error.name === "AbortError") return;
    blame(error.field ?? null, error.message);
    find("problem").textContent = plan === null ? error.message : `${error.message}. Below, dimmed, is the last plan that could be made.`;
    find("problem").hidden = false;
    find("planned").setAttribute("aria-busy", "false");
  }
}

/** A squared error of the mean as people compare it: root mean square of a parameter, in percent of an update's. */
const percentOf = (error) => (100 * Math.sqrt(error / plan.dimension)) / plan.deviation;

const times = (value) => `${value >= 10 ? value.toFixed(0) : value.toFixed(1)}\u00d7`;

function tilesOf() {
  const { classes, savings, privacy } = plan;
  const slow = Math.max(...classes.map((one) => one.seconds)), large = Math.max(...classes.map((one) => one.bytes));
  const tiles = [];
  if (savings !== null) {
    tiles.push(["Times less than float32, slowest class", times(savings.float32.slowest), `all users together ${times(savings.float32.all)}`],
      ["Times less than SecAgg of equal precision, slowest class", times(savings.secagg.slowest), `all users together ${times(savings.secagg.all)}; it takes ${savings.secagg_levels.toLocaleString("en")} levels, ${savings.secagg_bits} bits for everybody`]);
  }
  tiles.push(["Slowest upload", `${shorten(slow)} s`, plan.deadline ? `deadline ${shorten(plan.deadline)} s` : ""], ["Largest upload", `${shorten(large / 1000)} kB`, "masked vector of a user"]);
  if (privacy === null) tiles.push(["Error of the mean, at most", `${shorten(percentOf(plan.error))}%`, `of an update's RMS; ${shorten(Math.sqrt(plan.error / plan.dimension))} RMS a parameter`]);
  else {
    tiles.push(["Epsilon, all sums", shorten(privacy.epsilon_server), ""], ["Epsilon, models only", shorten(privacy.epsilon_model), privacy.epsilon_model === null ? "the bound is for the mean, not for the median" : ""],
      ["Error of the mean", shorten(privacy.error), "clipping norms"], ["Noise", shorten(privacy.noise_multiplier), "clipping norms"],
      ["Honest survivors of a block", String(privacy.honest), ""]);
  }
  tiles.push(["Inference robustness", plan.guarantees[0].value, `${shorten(100 * (1 - plan.robustness))}% of the segments of some subgroups' sum can be learned`],
    ["Attackers tolerated", String(plan.attackers.tolerated), `${plan.attackers.wanted} wanted`],
    ["Users", plan.users.toLocaleString("en"), `${plan.subgroups.length} subgroups, ${plan.segments.length} segments`]);
  return tiles;
}

function showPlan() {
  find("figures").replaceChildren(...tilesOf().map(([name, value, words]) => make("div", {}, make("dt", {}, name), make("dd", {}, value), make("dd", { class: "words" }, words))));
  const said = [...(plan.problem ? [`No plan meets all requirements: ${plan.problem}. This is the nearest one.`] : []), ...plan.warnings];
  find("warnings").replaceChildren(...said.map((words) => make("p", { class: "warning" }, words)));
  find("notes").replaceChildren(...plan.notes.map((note) => make("li", {}, note)));
  showClasses();
  showMatrix();
  showBars();
  showCurve();
  showGuarantees();
  showExport();
  if (current() === "attack") showAttack();
}

function showClasses() {
  const rows = plan.classes.map((one, index) => [index, one.users.toLocaleString("en"), shorten(one.rate), one.level.toLocaleString("en"),
    shorten(one.bytes / 1000), times(one.float32), shorten(one.seconds)]);
  find("classes").tBodies[0].replaceChildren(...rows.map(([index, ...cells]) => make("tr", {},
    make("th", { scope: "row" }, String(index)), ...cells.map((cell) => make("td", { class: "number" }, cell)))));
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
    + `up to 2 costs a few points of accuracy, beyond ${privacy.useless} much of it may be lost.`;
  if (curve === null) return;
  drawLines(find("curve"), curve.curves.map((points, at) => ({ label: curve.names[at], colour: 2 * at, points })), {
    title: "Error of the mean against epsilon", xLabel: `epsilon of ${privacy.rounds} rounds at delta ${shorten(privacy.delta)}`, xName: "epsilon",
    yLabel: "error, clipping norms", unit: "clipping norms", xLog: true, yLog: true, height: 260,
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
    : [...(plan.deadline ? [] : ["The line is the best plan at each deadline; the point is this one, whose limit is in bits."]),
      `No plan of these subgroup sizes is below ${shorten(percentOf(proposal.lower_bound))}%.`,
      ...(proposal.relaxing.length ? [] : [`What binds: ${proposal.binding}.`]),
      ...proposal.relaxing.map((one) => `With ${one.what} it would be ${shorten(percentOf(one.error))}%.`)].join(" ");
  if (curve === null) return;
  const usable = curve.curve.map(([deadline, error]) => [deadline, error === null || error <= 0 ? null : percentOf(error)]);
  const [deadline, error] = curve.chosen;
  drawLines(find("curve"), [{ label: "", colour: 0, points: usable }], {
    title: "Error of the mean against deadline", xLabel: "deadline for the upload, s", xName: "s", yLabel: "error, % of an update's RMS", unit: "%",
    xLog: true, yLog: true, height: 260,
    mark: { at: [deadline, percentOf(error)], label: `this plan: ${shorten(percentOf(error))}% at ${shorten(deadline)} s` },
  });
}

function showGuarantees() {
  const claimed = find("claims").checked;
  const rows = plan.guarantees.map((one) => make("tr", {},
    make("th", { scope: "row" }, one.name), make("td", {}, make("strong", {}, one.value)), make("td", {}, one.words),
    claimed ? make("td", {}, one.claim === null ? "none" : `${one.claim}: ${one.holds ? "it holds here" : "this plan goes by its own figure"}.`) : null));
  find("claims-head").hidden = !claimed;
  find("guarantees").tBodies[0].replaceChildren(...rows);
}

function showExport() {
  const text = plan.exports[exported];
  for (const button of document.querySelectorAll("[data-export]")) button.setAttribute("aria-pressed", String(button.dataset.export === exported));
  find("export").textContent = text;
  URL.revokeObjectURL(find("download").href);
  find("download").href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  find("download").download = { toml: "plan.toml", command: "plan.sh", python: "plan.py", train: "train.sh", flower: "flower_app.py" }[exported];
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
    if (worst) { malicious.clear(); found.spoiled.malicious.forEach((one) => malicious.add(one)); remember(); }
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
    words: !decoded.proper ? "" : shown.has(row) ? "exposed" : "hidden",
    decorate: (subgroup) => `${gone(subgroup)} ${picked.has(subgroup) ? "picked" : ""}`,
  })));
  find("decode-words").textContent = decoded.words;
  replaceTable("spoil", attackTable("Malicious users", malicious, (row) => {
    const { blocks, spoiled: bad, holds } = spoiled.segments[row];
    const hit = new Set(bad.flat());
    return {
      faint: false,
      words: `${bad.length} of ${blocks}${holds ? "" : ": fails"}`,
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
    onclick: () => { toggle(set, subgroup); showAttack(); remember(); },
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

// --- tabs and address -----------------------------------------------------------------------------------------------

const TABS = ["plan", "attack", "runs", "round"];
const SETS = { subgroups: picked, malicious, lost };

/** The address after the #: a tab, then what its form and picks are. */
function readAddress() {
  const [tab, query = ""] = location.hash.slice(1).split("?");
  return { tab: TABS.includes(tab) ? tab : "plan", query: new URLSearchParams(query) };
}

const current = () => readAddress().tab;

/** Put form and picks into the address, so that it can be sent to a colleague. */
function remember() {
  const tab = current();
  const query = tab === "runs" ? runsToQuery() : tab === "round" ? new URLSearchParams() : toQuery();
  if (tab === "attack") for (const [name, set] of Object.entries(SETS)) if (set.size) query.set(name, [...set].sort((a, b) => a - b).join(","));
  const words = query.toString();
  history.replaceState(null, "", `#${tab}${words ? `?${words}` : ""}`);
}

/** Take form and picks from the address, if it has any; whether the form changed. */
function recall() {
  const { tab, query } = readAddress();
  if (!query.size) return false;
  if (tab === "runs") runsFromQuery(query);
  if (tab !== "plan" && tab !== "attack") return false;
  const fresh = fromQuery(query);
  if (tab === "attack") {
    for (const [name, set] of Object.entries(SETS)) {
      set.clear();
      (query.get(name) ?? "").split(",").filter((word) => /^\d{1,2}$/.test(word)).forEach((word) => set.add(Number(word)));
    }
  }
  return fresh;
}

function visit() {
  if (recall()) refresh();
  showTab();
  remember();
}

function showTab() {
  for (const tab of TABS) {
    find(`tab-${tab}`).hidden = tab !== current();
    const link = document.querySelector(`nav a[href="#${tab}"]`);
    if (tab === current()) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  if (current() === "plan" && plan) { showBars(); showCurve(); }
  if (current() === "attack") showAttack();
  if (current() === "runs") { followRuns(); showRuns(); } else stopFollowing();
  if (current() === "round") showRound();
}

function start() {
  makeForm(changed);
  startRuns(remember);
  startRound();
  for (const button of document.querySelectorAll("[data-export]")) button.addEventListener("click", () => { exported = button.dataset.export; showExport(); });
  find("copy").addEventListener("click", () => copy(find("copy"), find("export").textContent));
  find("link").addEventListener("click", () => copy(find("link"), location.href));
  find("claims").addEventListener("change", showGuarantees);
  find("place").addEventListener("click", () => showAttack(Math.min(Number(find("worst").value) || 0, plan.subgroups.length)));
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); find("main").focus(); });
  window.addEventListener("hashchange", visit);
  let resized = 0;
  window.addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(showTab, 200); });
  recall();
  showTab();
  refresh();
}

start();
