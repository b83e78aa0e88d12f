// The Round tab: a small round, stepped through phase by phase.

import { ask, find, make } from "./dom.js";
import { drawBars, shorten } from "./plots.js";

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

/** Show the round, and run one if there was none. */
export function showRound() {
  if (told) showStep(); else runRound();
}

/** Wire the controls of the tab. */
export function startRound() {
  for (const id of ["watched", "dropping"]) find(id).append(...Array.from({ length: 12 }, (_, user) => make("option", { value: user }, String(user))));
  find("dropping").value = "5";
  find("round-form").addEventListener("submit", (event) => { event.preventDefault(); runRound(); });
  find("before").addEventListener("click", () => { place -= 1; showStep(); });
  find("next").addEventListener("click", () => { place += 1; showStep(); });
}
