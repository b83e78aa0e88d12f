// The form of the Plan tab: its fields, their controls, and the form as part of an address.

import { find, make } from "./dom.js";

const required = (form) => form.mode === "requirements";
const isPrivate = (form) => required(form) && form.privacy === "budget";
const byHand = (form) => form.mode === "hand";
const spread = (kind) => (form) => required(form) && (kind === "range" ? ["log-even", "even"].includes(form.rates_kind) : form.rates_kind === kind);

const FIELDS = [
  { group: "Users and links", name: "mode", label: "Choose by", kind: "select", value: "requirements", options: { requirements: "requirements: the best plan", hand: "hand: classes and levels" } },
  { group: "Users and links", name: "rates_kind", label: "Upload rates", kind: "select", value: "log-even", when: required,
    options: { "log-even": "spread evenly, by factors", even: "spread evenly", lognormal: "log-normal", list: "a list" } },
  { group: "Users and links", name: "users", label: "Users", value: 96, least: 4, most: 10000, log: true, whole: true, when: (form) => required(form) && form.rates_kind !== "list" },
  { group: "Users and links", name: "slowest", label: "Slowest", unit: "Mb/s", value: 1, least: 0.1, most: 100, log: true, when: spread("range") },
  { group: "Users and links", name: "fastest", label: "Fastest", unit: "Mb/s", value: 20, least: 0.1, most: 1000, log: true, when: spread("range") },
  { group: "Users and links", name: "median", label: "Median", unit: "Mb/s", value: 4, least: 0.1, most: 100, log: true, when: spread("lognormal") },
  { group: "Users and links", name: "spread", label: "Spread", unit: "sigma", value: 0.7, least: 0, most: 2, when: spread("lognormal") },
  { group: "Users and links", name: "rates", label: "Rates, Mb/s", kind: "area", value: "1 x 24, 2 x 24, 4 x 24, 8 x 24", when: spread("list") },
  { group: "Users and links", name: "classes", label: "Users per class, slowest first", kind: "text", value: "24, 24, 24, 24", when: byHand },
  { group: "Users and links", name: "class_rates", label: "Upload of each class, Mb/s", kind: "text", value: "1, 2, 4, 8", when: byHand },
  { group: "Design", name: "levels", label: "Quantizer levels per class", kind: "text", value: "2, 6, 8, 12", when: byHand },
  { group: "Design", name: "subgroup_size", label: "Subgroup size", value: 8, least: 2, most: 200, log: true, whole: true, when: byHand },
  { group: "Design", name: "design", label: "Design", kind: "select", value: "perfect", when: byHand,
    options: { perfect: "perfect", paper: "paper", "paper-composite": "paper-composite", secagg: "secagg", multigroup: "multigroup" } },
  { group: "Design", name: "fill_levels", label: "Raise levels as far as rings hold", kind: "check", value: true, when: byHand },
  { group: "Upload", name: "dimension", label: "Model size", unit: "elements", value: 79510, least: 100, most: 1e9, log: true, whole: true },
  { group: "Upload", name: "limit", label: "Limit", kind: "select", value: "deadline", options: { deadline: "a deadline", bits: "a number of bits" } },
  { group: "Upload", name: "deadline", label: "Deadline", unit: "s", value: 0.4, least: 0.05, most: 100, log: true, when: (form) => form.limit === "deadline" },
  { group: "Upload", name: "bits", label: "Bits of an upload", value: 800000, least: 1000, most: 1e10, log: true, whole: true, when: (form) => form.limit === "bits" },
  { group: "Dropouts and adversaries", name: "dropout", label: "Dropout", unit: "fraction of users", value: 0.1, least: 0, most: 0.49 },
  { group: "Dropouts and adversaries", name: "corrupt", label: "Corrupt users", unit: "fraction of users", value: 0, least: 0, most: 0.49, when: required },
  { group: "Dropouts and adversaries", name: "attackers", label: "Attackers to tolerate", value: 2, least: 0, most: 15, whole: true },
  { group: "Dropouts and adversaries", name: "colluders", label: "Colluders with the server (beyond 256 users 5% at least)", value: 1, least: 0, most: 50, whole: true, when: byHand },
  { group: "Dropouts and adversaries", name: "min_survivors", label: "Least survivors", unit: "survivors of a subgroup", value: 3, least: 2, most: 50, whole: true },
  { group: "Privacy", name: "privacy", label: "Noise inside the sums", kind: "select", value: "off", when: required,
    options: { off: "none", budget: "within a privacy budget" } },
  { group: "Privacy", name: "epsilon", label: "Epsilon", unit: "of all rounds", value: 8, least: 0.5, most: 16, log: true, when: isPrivate },
  { group: "Privacy", name: "delta", label: "Delta", value: 1e-5, least: 1e-9, most: 1e-2, log: true, when: isPrivate },
  { group: "Privacy", name: "rounds", label: "Rounds", value: 20, least: 1, most: 1000, log: true, whole: true, when: isPrivate },
  { group: "Privacy", name: "clip", label: "Clipping norm", value: 1, least: 0.01, most: 100, log: true, when: isPrivate },
  { group: "More", name: "most_subgroups", label: "Subgroups, at most", value: 16, least: 2, most: 64, whole: true, when: required },
  { group: "More", name: "most_classes", label: "Classes, at most", value: 6, least: 1, most: 20, whole: true, when: required },
  { group: "More", name: "value_range", label: "Value range", unit: "three standard deviations", value: 1, least: 0.001, most: 100, log: true },
  { group: "More", name: "ranges", label: "Ranges", kind: "select", value: "levels", options: { levels: "by level", single: "one for all, as in the paper" } },
  { group: "More", name: "max_weight", label: "Largest weight of a user", value: 1, least: 1, most: 1000, log: true, whole: true },
];

export const form = Object.fromEntries(FIELDS.map((field) => [field.name, field.value]));

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
  const change = (value) => { form[field.name] = value; showFields(); told(); };
  if (field.kind === "select") {
    const options = Object.entries(field.options).map(([value, words]) => make("option", { value }, words));
    label.className = "wide";
    row.append(make("select", { id, class: "wide", onchange: (event) => change(event.target.value) }, ...options));
  } else if (field.kind === "check") {
    const box = make("input", { id, type: "checkbox", onchange: (event) => change(event.target.checked) });
    box.checked = field.value;
    row.append(box);
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

let told = () => {};

/** Make the form; `changed` is called after every change. */
export function makeForm(changed) {
  told = changed;
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
export const filled = () => Object.fromEntries(FIELDS.filter((field) => !field.when || field.when(form)).map((field) => [field.name, form[field.name]]));

/** Point at the field that is wrong, or with null at none. */
export function blame(field, words) {
  for (const row of find("form").querySelectorAll(".field")) {
    const wrong = field !== null && row.id === `row-${field.split("[")[0]}`;
    const fault = row.querySelector(".fault");
    row.querySelector("input, select, textarea").setAttribute("aria-invalid", String(wrong));
    fault.hidden = !wrong;
    fault.textContent = wrong ? words : "";
  }
}

/** The fields that are shown and not as they began, as they stand in the address. */
export function toQuery() {
  const query = new URLSearchParams();
  for (const field of FIELDS) {
    const value = form[field.name];
    if ((!field.when || field.when(form)) && value !== field.value && value !== null) query.set(field.name, String(value));
  }
  return query;
}

/** Fill in the form from an address; what it does not name is as it began. Whether anything changed. */
export function fromQuery(query) {
  const before = JSON.stringify(form);
  for (const field of FIELDS) {
    const text = query.get(field.name);
    const value = text === null ? field.value : readValue(field, text);
    form[field.name] = value;
    setField(field, value);
  }
  showFields();
  return JSON.stringify(form) !== before;
}

function readValue(field, text) {
  if (field.kind === "select") return text in field.options ? text : field.value;
  if (field.kind === "check") return text === "true";
  if (field.kind === "text" || field.kind === "area") return text;
  return text.trim() === "" || Number.isNaN(Number(text)) ? field.value : Number(text);
}

function setField(field, value) {
  const row = find(`row-${field.name}`), box = find(`f-${field.name}`), slider = row.querySelector("input[type=range]");
  if (field.kind === "check") box.checked = value; else box.value = value ?? "";
  if (slider) {
    slider.value = toSlider(field, Number(value));
    slider.setAttribute("aria-valuetext", `${box.value} ${field.unit || ""}`);
  }
}
