// The Runs tab: which runs there are, and those that are picked side by side, followed as they are written.

import { ask, find, make } from "./dom.js";
import { drawBars, drawLines } from "./plots.js";

const MOST = 8;
const chosen = new Set(), runs = new Map(), unreadable = new Set();
const view = { smooth: 0, log: false, filter: "" };
let stream = null, comparing = 0, listed = null, remember = () => {}, unpicked = true;

/** Follow the runs that are picked; also brings the listing up to date. */
export function followRuns() {
  stream?.close();
  const query = [...chosen].map((name) => `run=${encodeURIComponent(name)}`).join("&");
  stream = new EventSource(`/api/events?${query}`);
  stream.addEventListener("list", (event) => showListing(JSON.parse(event.data).runs));
  stream.addEventListener("run", (event) => {
    const run = JSON.parse(event.data);
    unreadable.delete(run.name);
    runs.set(run.name, run);
    showRuns();
  });
  stream.addEventListener("problem", (event) => { unreadable.add(JSON.parse(event.data).name); showRuns(); });
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

export function stopFollowing() {
  stream?.close();
  stream = null;
}

// --- which runs -----------------------------------------------------------------------------------------------------

function showListing(listing) {
  const known = listed !== null && !unpicked;
  listed = listing;
  const count = (state) => listing.filter((run) => run.state === state).length;
  find("live").textContent = listing.length === 0
    ? "No runs in this folder yet. Start one with heterosag train --out FOLDER/NAME; it appears here by itself."
    : `${listing.length} runs: ${count("running")} running, ${count("finished")} finished, ${count("interrupted")} interrupted. Running ones first, then the newest; figures follow as rounds are written.`;
  if (unpicked) {
    const usable = listing.filter((run) => !run.problem).slice(0, 3);
    usable.forEach((run) => chosen.add(run.name));
    unpicked = usable.length === 0;
    if (usable.length) followRuns();
  }
  drawListing();
  if (!known) showRuns();
}

function drawListing() {
  if (listed === null) return;
  const focused = document.activeElement?.id;
  const wanted = view.filter.trim().toLowerCase();
  const shown = listed.filter((run) => run.name.toLowerCase().includes(wanted));
  find("listing").tBodies[0].replaceChildren(...shown.map((run) => {
    const id = `run:${run.name}`;
    const box = make("input", { type: "checkbox", id, value: run.name, disabled: Boolean(run.problem), onchange: pickRun });
    box.checked = chosen.has(run.name);
    const name = make("label", { for: id }, box, make("span", { class: "swatch", "data-run": run.name }), run.name);
    if (run.problem) return make("tr", { class: "faint" }, make("th", { scope: "row" }, name), make("td", { colspan: 4 }, run.problem));
    const failed = run.failed ? `, ${run.failed} failed` : "";
    const percent = run.accuracy === null ? "-" : `${(100 * run.accuracy).toFixed(1)}%`;
    return make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, make("span", { class: `state ${run.state}` }, run.state)),
      make("td", { class: "number" }, percent), make("td", { class: "number" }, `${run.rounds} of ${run.planned ?? "?"}${failed}`),
      make("td", { class: "number" }, new Date(run.started).toLocaleString([], { dateStyle: "medium", timeStyle: "short" })));
  }));
  paintSwatches();
  find("filter-words").textContent = wanted ? `${shown.length} of ${listed.length} runs` : "";
  if (focused) find(focused)?.focus();
}

/** Runs that are picked have the colour of their lines; the rows themselves stay, under pointer and focus. */
function paintSwatches() {
  const colours = colourOf();
  for (const swatch of find("listing").querySelectorAll(".swatch")) {
    const { run } = swatch.dataset;
    swatch.className = `swatch ${chosen.has(run) ? `s${colours.get(run)}` : ""}`;
  }
}

const colourOf = () => new Map([...chosen].map((name, at) => [name, at % MOST]));

function pickRun(event) {
  const { value, checked } = event.target;
  find("too-many").hidden = !(checked && chosen.size >= MOST);
  if (checked && chosen.size >= MOST) { event.target.checked = false; return; }
  if (checked) chosen.add(value); else { chosen.delete(value); runs.delete(value); }
  paintSwatches();
  followRuns();
  showRuns();
  remember();
}

// --- figures --------------------------------------------------------------------------------------------------------

/** A moving average that forgets by `weight` a point, as TensorBoard's: without the bias of its beginning. */
function smooth(points, weight) {
  let sum = 0, total = 0;
  return points.map(([x, y]) => {
    if (y === null) return [x, null];
    sum = weight * sum + (1 - weight) * y;
    total = weight * total + (1 - weight);
    return [x, sum / total];
  });
}

function linesOf(shown, x, y, step) {
  return shown.flatMap((run) => {
    const points = run.points.map((point) => [x(point), y(point)]);
    const whole = { label: run.name, colour: run.colour, step, points };
    if (!view.smooth || step) return [whole];
    return [{ ...whole, label: "", faint: true }, { ...whole, raw: points, points: smooth(points, view.smooth) }];
  });
}

/** Whether the listing, or a run that is picked and can be read, is still to come. */
function isLoading() {
  const come = (run) => !chosen.has(run.name) || run.problem || runs.has(run.name) || unreadable.has(run.name);
  return listed === null || !listed.every(come);
}

/** Draw everything about the runs that are picked. */
export function showRuns() {
  const colours = colourOf();
  const shown = [...chosen].filter((name) => runs.has(name)).map((name) => ({ ...runs.get(name), colour: colours.get(name) }));
  const percent = (value) => (value === null || value === undefined ? null : 100 * value);
  const empty = isLoading() ? "Loading runs." : chosen.size ? "Nothing of this is known of these runs." : "Pick a run above.";
  const round = { xLabel: "round", xName: "round", wholeX: true, yLog: view.log, empty };
  const accuracy = { yLabel: "test accuracy, %", unit: "%", low: view.log ? undefined : 0, high: view.log ? undefined : 100 };
  drawLines(find("accuracy-rounds"), linesOf(shown, (point) => point.round, (point) => percent(point.accuracy)), { ...round, ...accuracy, title: "Accuracy over rounds" });
  drawLines(find("accuracy-time"), linesOf(shown, (point) => point.seconds, (point) => percent(point.accuracy)),
    { ...round, ...accuracy, title: "Accuracy over communication time", xLabel: "communication time, s", xName: "s", wholeX: false });
  drawLines(find("loss"), linesOf(shown, (point) => point.round, (point) => point.loss), { ...round, title: "Loss", yLabel: "test loss", unit: "" });
  const relative = shown.some((run) => run.points.some((point) => point.relative_error !== null));
  drawLines(find("error"), linesOf(shown, (point) => point.round, (point) => (relative ? percent(point.relative_error) : point.aggregate_error)),
    { ...round, title: "Error of the aggregate", yLabel: relative ? "error, % of update" : "error, RMS per parameter", unit: relative ? "%" : "RMS", low: view.log ? undefined : 0 });
  const counts = { ...round, yLog: false, low: 0, wholeY: true };
  drawLines(find("survivors"), linesOf(shown, (point) => point.round, (point) => point.survivors, true), { ...counts, title: "Survivors", yLabel: "users", unit: "users" });
  drawLines(find("refusals"), linesOf(shown, (point) => point.round, (point) => point.refusals, true), { ...counts, title: "Messages refused", yLabel: "messages", unit: "messages" });
  drawRunBytes(shown, empty);
  const failed = shown.flatMap((run) => run.points.filter((point) => point.error).map((point) => `${run.name}, round ${point.round}: ${point.error}`));
  find("failed").replaceChildren(...failed.slice(0, 10).map((words) => make("li", {}, words)));
  find("failed-title").textContent = failed.length > 10 ? `Rounds that failed: the first 10 of ${failed.length}` : "Rounds that failed";
  find("failed-rounds").hidden = failed.length === 0;
  clearTimeout(comparing);
  comparing = setTimeout(showCompared, 250, shown.map((run) => run.name));
}

function drawRunBytes(shown, empty) {
  const classes = Math.max(0, ...shown.map((run) => Math.max(0, ...run.points.map((point) => point.bytes.length))));
  const mean = (run, index) => {
    const sizes = run.points.map((point) => point.bytes[index]).filter((size) => size > 0);
    return sizes.length ? sizes.reduce((sum, size) => sum + size, 0) / sizes.length / 1000 : 0;
  };
  const names = Array.from({ length: classes }, (_, index) => `class ${index}`);
  drawBars(find("run-bytes"), names, classes ? shown.map((run) => ({ label: run.name, colour: run.colour, values: names.map((_, index) => mean(run, index)) })) : [],
    { title: "Bytes a user sends in a round", xLabel: "class, slowest link first", yLabel: "kB a round", unit: "kB", empty });
}

// --- side by side ---------------------------------------------------------------------------------------------------

function fillTable(id, names, rows) {
  find(id).replaceChildren(
    make("thead", {}, make("tr", {}, make("td", {}, ""), ...names.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, make("th", { scope: "row" }, row.name), ...row.cells.map((cell) => make("td", {}, cell))))));
}

let compared = 0;

async function showCompared(names) {
  const number = ++compared;
  find("difference").hidden = names.length < 2;
  if (!names.length) {
    for (const id of ["compared", "ran", "differences"]) find(id).replaceChildren();
    find("commands").replaceChildren();
    return;
  }
  try {
    const found = await ask(`/api/compare?${names.map((name) => `run=${encodeURIComponent(name)}`).join("&")}`);
    if (number !== compared) return;
    fillTable("compared", names, found.rows);
    fillTable("ran", names, found.ran);
    fillTable("differences", names, found.differences);
    find("same").hidden = found.differences.length > 0;
    find("commands").replaceChildren(...names.flatMap((name, at) => (found.commands[at] ? [make("p", { class: "lead" }, name), make("pre", {}, found.commands[at])] : [])));
  } catch (error) {
    find("compared").replaceChildren(make("caption", {}, error.message));
  }
}

// --- controls and address -------------------------------------------------------------------------------------------

function showView() {
  find("smooth").value = String(100 * view.smooth);
  find("smooth-words").textContent = view.smooth ? view.smooth.toFixed(2) : "off";
  find("log").checked = view.log;
  find("filter").value = view.filter;
}

/** Wire the controls of the tab; `changed` is called after every change that belongs into the address. */
export function startRuns(changed) {
  remember = changed;
  find("smooth").addEventListener("input", () => { view.smooth = Number(find("smooth").value) / 100; showView(); showRuns(); remember(); });
  find("log").addEventListener("change", () => { view.log = find("log").checked; showRuns(); remember(); });
  find("filter").addEventListener("input", () => { view.filter = find("filter").value; drawListing(); remember(); });
  find("none").addEventListener("click", () => { chosen.clear(); runs.clear(); drawListing(); followRuns(); showRuns(); remember(); });
  showView();
}

/** What is picked and how it is drawn, for the address. */
export function runsToQuery() {
  const query = new URLSearchParams();
  if (!unpicked) { for (const name of chosen) query.append("run", name); if (!chosen.size) query.append("run", ""); }
  if (view.smooth) query.set("smooth", String(view.smooth));
  if (view.log) query.set("log", "true");
  if (view.filter) query.set("filter", view.filter);
  return query;
}

/** Pick and draw as an address says. */
export function runsFromQuery(query) {
  if (query.has("run")) {
    chosen.clear();
    runs.clear();
    query.getAll("run").filter(Boolean).slice(0, MOST).forEach((name) => chosen.add(name));
    unpicked = false;
  }
  const weight = Number(query.get("smooth"));
  view.smooth = weight > 0 && weight < 1 ? weight : 0;
  view.log = query.get("log") === "true";
  view.filter = query.get("filter") ?? "";
  showView();
}
