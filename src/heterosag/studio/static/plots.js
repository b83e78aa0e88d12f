// Small figures as SVG: lines, steps and bars, with labelled axes, units, and the values under the pointer. No dependencies.

const NS = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, text) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

/** A number for people: few digits, no noise. */
export function shorten(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 1e-3 || size >= 1e7) return value.toExponential(1).replace("e+", "e").replace(".0e", "e");
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

function niceTicks(low, high, wanted, whole) {
  const span = Math.max(high - low, 1e-9 * Math.max(Math.abs(low), Math.abs(high))) || 1;  // a step that moves, also at 1e20
  let step = 10 ** Math.floor(Math.log10(span / wanted));
  for (const factor of [1, 2, 5, 10]) {
    if (span / (step * factor) <= wanted) { step *= factor; break; }
  }
  if (whole) step = Math.max(1, Math.round(step));
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) ticks.push(Number(at.toPrecision(12)));
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((last - first) / 6));
  for (let power = first; power <= last; power += every) ticks.push(10 ** power);
  if (last - first <= 2) for (let power = first; power <= last; power++) ticks.push(2 * 10 ** power, 5 * 10 ** power);
  return ticks.filter((at) => at >= low * 0.999 && at <= high * 1.001).sort((a, b) => a - b);
}

function scaleOf(low, high, from, to, log) {
  if (log) {
    const a = Math.log10(low), b = Math.log10(high);
    return (value) => from + ((Math.log10(value) - a) / (b - a || 1)) * (to - from);
  }
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

function frame(place, options, series) {
  const width = Math.max(280, Math.min(place.clientWidth || 480, 1000));
  const legend = series.filter((one) => one.label);
  const columns = Math.max(1, Math.floor((width - 60) / 150));
  const rows = legend.length > 1 ? Math.ceil(legend.length / columns) : 0;
  const height = (options.height || 240) + rows * 18;
  const box = { left: 62, right: width - 14, top: 12 + rows * 18, bottom: height - 44 };
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.title });
  legend.slice(0, rows ? undefined : 0).forEach((one, at) => {
    const x = box.left + (at % columns) * 150, y = 12 + Math.floor(at / columns) * 18;
    svg.append(make("rect", { x, y: y - 8, width: 12, height: 8, class: `box s${one.colour}` }));
    svg.append(make("text", { x: x + 17, y }, one.label.length > 20 ? `${one.label.slice(0, 19)}…` : one.label));
  });
  svg.append(make("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle" }, options.xLabel || ""));
  const turned = make("text", { x: 12, y: (box.top + box.bottom) / 2, "text-anchor": "middle" }, options.yLabel || "");
  turned.setAttribute("transform", `rotate(-90 12 ${(box.top + box.bottom) / 2})`);
  svg.append(turned);
  place.replaceChildren(svg);
  return { svg, box };
}

function drawYAxis(svg, box, ticks, y) {
  for (const tick of ticks) {
    svg.append(make("line", { x1: box.left, x2: box.right, y1: y(tick), y2: y(tick), class: "grid" }));
    svg.append(make("text", { x: box.left - 6, y: y(tick) + 4, "text-anchor": "end", class: "tick" }, shorten(tick)));
  }
}

function drawXAxis(svg, box, ticks, x) {
  svg.append(make("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" }));
  for (const tick of ticks) {
    svg.append(make("text", { x: x(tick), y: box.bottom + 16, "text-anchor": "middle", class: "tick" }, shorten(tick)));
  }
}

function sayNothing(place, words) {
  const line = document.createElement("p");
  line.className = "none";
  line.textContent = words;
  place.replaceChildren(line);
}

/** The words beside the pointer, inside a figure's place. */
function makeTip(place) {
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("role", "status");
  place.append(tip);
  return (lines, x, y) => {
    tip.hidden = lines === null;
    if (lines === null) return;
    tip.replaceChildren(...lines.map(({ words, colour }) => {
      const line = document.createElement("div");
      if (colour !== undefined) line.className = `key s${colour}`;
      line.textContent = words;
      return line;
    }));
    const scale = place.clientWidth / (place.querySelector("svg").viewBox.baseVal.width || 1);
    const left = x * scale;
    tip.style.left = `${left > place.clientWidth / 2 ? Math.max(0, left - tip.offsetWidth - 12) : left + 12}px`;
    tip.style.top = `${y * scale}px`;
  };
}

/** Values of all lines at the x nearest to the pointer; arrow keys move it, too. */
function addHover(place, svg, box, series, options, x, y) {
  const named = series.filter((one) => !one.faint);
  const places = [...new Set(named.flatMap((one) => one.points.filter((point) => point[1] !== null).map((point) => point[0])))].sort((a, b) => a - b);
  const tell = makeTip(place), line = make("line", { y1: box.top, y2: box.bottom, class: "cross", visibility: "hidden" });
  svg.append(line);
  svg.setAttribute("tabindex", "0");
  let at = -1;
  const show = (index) => {
    at = Math.max(0, Math.min(places.length - 1, index));
    const where = places[at];
    line.setAttribute("visibility", "visible");
    line.setAttribute("x1", x(where));
    line.setAttribute("x2", x(where));
    const lines = named.flatMap((one) => {
      const found = one.points.findIndex((point) => point[0] === where && point[1] !== null);
      if (found < 0) return [];
      const raw = one.raw ? ` (as measured ${shorten(one.raw[found][1])})` : "";
      return [{ words: `${one.label ? `${one.label}: ` : ""}${shorten(one.points[found][1])} ${options.unit ?? ""}${raw}`.trim(), colour: one.colour }];
    });
    tell([{ words: options.xName === "round" ? `round ${shorten(where)}` : `${shorten(where)} ${options.xName ?? ""}` }, ...lines], x(where), box.top);
  };
  const hide = () => { tell(null); line.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointermove", (event) => {
    const bounds = svg.getBoundingClientRect();
    const px = ((event.clientX - bounds.left) * svg.viewBox.baseVal.width) / bounds.width;
    show(places.reduce((best, value, index) => (Math.abs(x(value) - px) < Math.abs(x(places[best]) - px) ? index : best), 0));
  });
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) { event.preventDefault(); show(at + move); }
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
}

/** Lines over x. series: {label, colour, points: [[x, y|null]], step, faint, raw}; options: title, xLabel, xName, yLabel, unit, xLog, yLog, low, high, wholeX, mark, guide: {value, label}. */
export function drawLines(place, given, options) {
  const drawable = ([, value]) => value !== null && value !== undefined && (!options.yLog || value > 0);
  const series = given.map((one) => ({ ...one, points: one.points.map((point) => (drawable(point) ? point : [point[0], null])) }));
  const points = series.flatMap((one) => one.points).filter((point) => point[1] !== null);
  if (options.mark) points.push(options.mark.at);
  if (options.guide && points.length) points.push([points[0][0], options.guide.value]);
  if (!points.length) return sayNothing(place, options.empty || "Nothing to show yet.");
  const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
  const { svg, box } = frame(place, options, series);
  let [left, right] = [Math.min(...xs), Math.max(...xs)];
  if (left === right) [left, right] = options.xLog ? [left / 2, left * 2] : [left - 1, right + 1];
  let low = options.low ?? Math.min(...ys), high = options.high ?? Math.max(...ys);
  if (options.yLog) [low, high] = [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high) + 1e-9)];
  if (low === high) high = low + (Math.abs(low) || 1);
  const x = scaleOf(left, right, box.left + 8, box.right - 8, options.xLog);
  const y = scaleOf(low, high, box.bottom, box.top, options.yLog);
  drawYAxis(svg, box, options.yLog ? logTicks(low, high) : niceTicks(low, high, 5, options.wholeY), y);
  drawXAxis(svg, box, options.xLog ? logTicks(left, right) : niceTicks(left, right, 7, options.wholeX), x);
  if (options.guide) drawGuide(svg, box, y(options.guide.value), options.guide.label, "start");
  for (const one of series) drawOne(svg, one, x, y);
  if (options.mark) drawMark(svg, box, options.mark, x, y);
  if (series.some((one) => one.points.some((point) => point[1] !== null))) addHover(place, svg, box, series, options, x, y);
  return svg;
}

function drawOne(svg, one, x, y) {
  let path = "", pen = "M", last = null;
  for (const [at, value] of one.points) {
    if (value === null) { pen = "M"; continue; }
    if (one.step && pen === "L") path += `L${x(at).toFixed(1)} ${y(last).toFixed(1)}`;
    path += `${pen}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
    last = value;
  }
  svg.append(make("path", { d: path, class: `line s${one.colour} ${one.faint ? "faint" : ""}` }));
  if (one.points.length > 60 || one.faint) return;
  for (const [at, value] of one.points) {
    if (value !== null) svg.append(make("circle", { cx: x(at), cy: y(value), r: 3, class: `dot s${one.colour}` }));
  }
}

function drawGuide(svg, box, at, label, side = "end") {
  svg.append(make("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "guide" }));
  svg.append(make("text", { x: side === "end" ? box.right : box.left + 8, y: at - 5, "text-anchor": side }, label));
}

function drawMark(svg, box, mark, x, y) {
  const [cx, cy] = [x(mark.at[0]), y(mark.at[1])];
  svg.append(make("line", { x1: cx, x2: cx, y1: box.top, y2: box.bottom, class: "guide" }));
  svg.append(make("circle", { cx, cy, r: 6, class: "point" }));
  const before = cx > (box.left + box.right) / 2;
  svg.append(make("text", { x: cx + (before ? -11 : 11), y: cy + (mark.below ? 20 : -8), "text-anchor": before ? "end" : "start" }, mark.label));
}

/** Bars in groups. names: one a group; series: {label, colour, values}; options: title, xLabel, yLabel, guide: {value, label}. */
export function drawBars(place, names, series, options) {
  const values = series.flatMap((one) => one.values).filter((value) => value !== null);
  if (!values.length) return sayNothing(place, options.empty || "Nothing to show yet.");
  const { svg, box } = frame(place, options, series), tell = makeTip(place);
  const high = Math.max(...values, options.guide ? options.guide.value : 0) * 1.12 || 1;
  const y = scaleOf(0, high, box.bottom, box.top, false);
  drawYAxis(svg, box, niceTicks(0, high, 5, options.wholeY), y);
  const wide = (box.right - box.left) / names.length, thin = Math.min(46, (wide * 0.76) / series.length);
  names.forEach((name, group) => {
    const middle = box.left + (group + 0.5) * wide;
    series.forEach((one, at) => {
      const value = one.values[group] ?? 0, left = middle + (at - series.length / 2) * thin;
      const bar = make("rect", { x: left + 1, y: y(value), width: Math.max(1, thin - 2), height: Math.max(0, box.bottom - y(value)), class: `box s${one.colour}` });
      bar.addEventListener("pointerenter", () => tell([{ words: `${name}${one.label ? `, ${one.label}` : ""}: ${shorten(value)} ${options.unit || ""}`, colour: one.colour }], left + thin, y(value)));
      bar.addEventListener("pointerleave", () => tell(null));
      svg.append(bar);
      if (thin >= 28 && names.length * series.length <= 12) {
        const inside = box.bottom - y(value) > 24;
        svg.append(make("text", { x: left + thin / 2, y: y(value) + (inside ? 14 : -4), "text-anchor": "middle", class: inside ? "tick inside" : "tick" }, shorten(value)));
      }
    });
    if (wide >= 16 || group % 2 === 0) svg.append(make("text", { x: middle, y: box.bottom + 16, "text-anchor": "middle", class: "tick" }, name));
  });
  svg.append(make("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" }));
  if (options.guide) drawGuide(svg, box, y(options.guide.value), options.guide.label);
  return svg;
}
