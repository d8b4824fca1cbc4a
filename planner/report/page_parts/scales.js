// What is looked at? Axes, filters and the chosen design; and where a value lies on an axis.

const wanted = answer.objectives.map((name) => objectiveKeys[name]).filter(Boolean);
const axisOrder = [...new Set([...wanted, "time_to_train_days", "cost_usd"])];
const state = { x: axisOrder[0], y: axisOrder[1], isLog: true, filters: {}, pointed: null, picked: null };
const kept = new Uint8Array(cloud.rows);

function isWithin(values) {
  return Object.entries(state.filters).every(([key, [low, high]]) => values[key] >= low && values[key] <= high);
}

function applyFilters() {
  kept.fill(1);
  for (const [key, [low, high]] of Object.entries(state.filters)) {
    const values = cloud.columns[key];
    for (let row = 0; row < cloud.rows; row += 1) if (!(values[row] >= low && values[row] <= high)) kept[row] = 0;
  }
  const total = kept.reduce((sum, value) => sum + value, 0);
  const onFront = front.filter((design) => isWithin(design.values)).length;
  const active = Object.keys(state.filters).length;
  byId("num-kept").textContent = active
    ? `${formats.count(total)} of ${formats.count(cloud.rows)} designs pass the filters, ${onFront} of them on the front.`
    : "No filters.";
  byId("clear-filters").disabled = !active;
}

// Of a figure that follows the step, the ends of the interval of the step; without reach, the figure itself.
function errorEnds(design, key, reach) {
  const { low_fraction: low, high_fraction: high } = design.interval;
  return [low, high].map((end) => design.values[key] * (1 + reach * (end - 1)));
}

// Beside the front there is room for designs that are nearly as good; the others are shown on demand. Below it lies hardly
// anything but what breaks a limit. `_window` of planner/report/plots.py draws the same.
const ROOM_BELOW = 0.1, ROOM_ABOVE = 0.3;
function extent(key) {
  let low = Infinity, high = -Infinity;
  const take = (value) => { if (value < low) low = value; if (value > high) high = value; };
  const reach = byId("show-errors").checked && metrics[key].hasError ? 1 : 0;
  for (const design of front) errorEnds(design, key, reach).forEach(take);
  if (!byId("show-far").checked) {
    const size = high - low || high || 1, most = key.endsWith("_fraction") ? 1 : Infinity;
    return [Math.max(low - ROOM_BELOW * size, low / 2), Math.min(high + ROOM_ABOVE * size, most)];
  }
  const values = cloud.columns[key];
  for (let row = 0; row < cloud.rows; row += 1) if (isShown(row)) take(values[row]);
  return [low, high];
}

// With room beyond both ends, a share of the axis.
function scale([low, high], isLog, from, to, roomShare = 0.06) {
  const usesLog = isLog && low > 0;
  const warp = usesLog ? Math.log : (value) => value;
  let start = warp(low), end = warp(high);
  const room = end > start ? roomShare * (end - start) : Math.abs(start) * 0.1 || 1;
  start -= room; end += room;
  const place = (value) => from + ((warp(value) - start) / (end - start)) * (to - from);
  const back = (pixel) => {
    const value = start + ((pixel - from) / (to - from)) * (end - start);
    return usesLog ? Math.exp(value) : value;
  };
  return { place, back, usesLog, low: usesLog ? Math.exp(start) : start, high: usesLog ? Math.exp(end) : end };
}

// Whether a logarithmic axis is long enough for powers of ten; others have equal steps.
const hasPowers = ({ low, high, usesLog }) => usesLog && high / low > 4;
const TIMES = [[365.25, "years"], [1, "days"], [1 / 24, "h"], [1 / 1440, "min"]];

// The unit in which numbers of an axis are round, in that of the metric, and its name where all of them have it.
function axisUnit(key, axis) {
  const { unit } = metrics[key];
  if (unit === "bytes") return [GIB, ""];
  if (unit !== "days" || hasPowers(axis)) return [1, ""];
  return TIMES.find(([size]) => axis.high >= 2 * size) || TIMES[3];
}

// A round number does without the zeros behind its point.
function tickText(key, value, axis) {
  const [size, name] = axisUnit(key, axis);
  const text = name ? `${Number((value / size).toPrecision(6))} ${name}`
    : metrics[key].format(value).replace(/(\.\d*?)0+(?= |$)/, "$1").replace(/\.(?= |$)/, "");
  return text.replace(/^1 (day|year)s$/, "1 $1");
}

function ticks(key, axis, most) {
  const [size] = axisUnit(key, axis);
  return roundNumbers({ ...axis, low: axis.low / size, high: axis.high / size }, most).map((value) => value * size);
}

function roundNumbers(axis, most) {
  const { low, high } = axis;
  if (hasPowers(axis)) {
    for (const steps of [[1, 2, 5], [1, 3], [1]]) {
      const found = [];
      for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
        for (const step of steps) found.push(step * 10 ** power);
      }
      const inside = found.filter((value) => value >= low && value <= high);
      if (inside.length <= most && inside.length > 1) return inside;
    }
  }
  const rough = (high - low) / most;
  const size = 10 ** Math.floor(Math.log10(rough));
  const widest = [1, 2, 5, 10].find((factor) => size * factor >= rough) || 10;
  // One number on an axis says nothing of its scale: a finer step then.
  for (const factor of [widest, widest / 2, widest / 4, widest / 5, widest / 10]) {
    const step = size * factor, found = [];
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
    if (found.length > 1 || !(high > low)) return found;
  }
  return [];
}
