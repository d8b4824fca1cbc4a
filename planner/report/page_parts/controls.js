// What do pointers, keys and controls do? They choose axes, filters and a design; everything is drawn once a frame at most.

let isWaiting = false;
function drawAll() {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(() => { isWaiting = false; drawCloud(); drawOverlay(); drawParallel(); });
}

function look(design) {
  const before = state.pointed;
  state.pointed = design;
  if (before === design || (before && design && before.id === design.id)) return;
  drawOverlay();
  drawParallel();
}

function pick(design) {
  state.picked = design;
  state.pointed = null;
  if (design) fill(byId("chosen"), design);
  else { byId("chosen").replaceChildren(); delete byId("chosen").dataset.design; }
  drawOverlay();
  drawParallel();
}

function showTip(design, x, y) {
  tip.hidden = !design;
  if (!design) return;
  fill(tip, design);
  const { width, height } = tip.getBoundingClientRect();
  const left = x + 16 + width > plot.width ? Math.max(0, x - width - 16) : x + 16;
  tip.style.left = `${Math.min(left, plot.width - width)}px`;
  tip.style.top = `${Math.max(0, Math.min(y - height / 2, plot.height - height))}px`;
}

function setFilter(key, low, high) {
  if (low === null && high === null) delete state.filters[key];
  else state.filters[key] = [low ?? -Infinity, high ?? Infinity];
  filtersChanged();
}

function filtersChanged() {
  applyFilters();
  showTyped();
  drawAll();
}

function placed(event, element) {
  const box = element.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}

let pressed = null;
const LEAST_DRAG = 6;

scatter.addEventListener("pointerdown", (event) => { pressed = placed(event, scatter); });
scatter.addEventListener("pointermove", (event) => {
  const at = placed(event, scatter);
  if (pressed && Math.hypot(at.x - pressed.x, at.y - pressed.y) > LEAST_DRAG) {
    showTip(null);
    scatter.setPointerCapture(event.pointerId);
    drawOverlay({ x0: pressed.x, y0: pressed.y, x1: at.x, y1: at.y });
    return;
  }
  const design = designAt(at.x, at.y);
  look(design);
  showTip(design, at.x, at.y);
});
scatter.addEventListener("pointerup", (event) => {
  const at = placed(event, scatter);
  if (pressed && Math.hypot(at.x - pressed.x, at.y - pressed.y) > LEAST_DRAG) {
    const between = (axis, one, other) => [axis.back(one), axis.back(other)].sort((a, b) => a - b);
    state.filters[state.x] = between(plot.x, pressed.x, at.x);
    state.filters[state.y] = between(plot.y, pressed.y, at.y);
    filtersChanged();
  } else {
    pick(designAt(at.x, at.y));
  }
  pressed = null;
});
scatter.addEventListener("pointercancel", () => { pressed = null; drawOverlay(); });
scatter.addEventListener("pointerleave", () => { if (!pressed) { look(null); showTip(null); } });

scatter.addEventListener("keydown", (event) => {
  const sorted = [...front].sort((one, other) => one.values[state.x] - other.values[state.x]);
  const now = sorted.findIndex((design) => state.picked && design.id === state.picked.id);
  const best = sorted.findIndex((design) => design.role === "recommended");
  const places = {
    ArrowRight: now < 0 ? best : now + 1, ArrowUp: now < 0 ? best : now + 1,
    ArrowLeft: now < 0 ? best : now - 1, ArrowDown: now < 0 ? best : now - 1,
    Home: 0, End: sorted.length - 1,
  };
  if (event.key === "Escape") { clearAll(); return; }
  if (!(event.key in places)) return;
  event.preventDefault();
  pick(sorted[Math.max(0, Math.min(sorted.length - 1, places[event.key]))]);
});

function clearAll() {
  state.filters = {};
  pick(null);
  showTip(null);
  filtersChanged();
}

let dragged = null;
parallel.addEventListener("pointerdown", (event) => {
  const at = placed(event, parallel);
  const row = Math.round((at.y - TOP) / ROW);
  if (row < 0 || row >= parallelKeys.length) return;
  dragged = { key: parallelKeys[row], x: at.x };
  parallel.setPointerCapture(event.pointerId);
});
parallel.addEventListener("pointermove", (event) => {
  if (!dragged) return;
  const axis = lines.scales[dragged.key];
  const ends = [axis.back(dragged.x), axis.back(placed(event, parallel).x)].sort((a, b) => a - b);
  state.filters[dragged.key] = ends;
  filtersChanged();
});
parallel.addEventListener("pointerup", (event) => {
  if (dragged && Math.abs(placed(event, parallel).x - dragged.x) < LEAST_DRAG) setFilter(dragged.key, null, null);
  dragged = null;
});
parallel.addEventListener("pointercancel", () => { dragged = null; });

function typedInput(key, end, text) {
  const input = Object.assign(document.createElement("input"), { type: "number", step: "any", id: `${end}-${key}` });
  const holder = document.createElement("label");
  holder.append(`${text} `, input);
  input.addEventListener("change", () => {
    const [low, high] = ["low", "high"].map((side) => byId(`${side}-${key}`).value);
    setFilter(key, low === "" ? null : Number(low), high === "" ? null : Number(high));
  });
  return holder;
}

function makeTyped() {
  for (const key of parallelKeys) {
    const set = document.createElement("fieldset"), legend = document.createElement("legend");
    legend.textContent = `${metrics[key].name} (${metrics[key].unit})`;
    set.append(legend, typedInput(key, "low", "from"), typedInput(key, "high", "to"));
    byId("typed-filters").append(set);
  }
}

function showTyped() {
  for (const key of parallelKeys) {
    const ends = state.filters[key] || [-Infinity, Infinity];
    ["low", "high"].forEach((side, place) => {
      const value = Number.isFinite(ends[place]) ? String(Number(ends[place].toPrecision(6))) : "";
      if (document.activeElement !== byId(`${side}-${key}`)) byId(`${side}-${key}`).value = value;
    });
  }
}

function makeControls() {
  for (const axis of ["x", "y"]) {
    const select = byId(`axis-${axis}`);
    for (const [key, metric] of Object.entries(metrics)) {
      select.append(new Option(metric.name, key, false, key === state[axis]));
    }
    select.addEventListener("change", () => { state[axis] = select.value; drawAll(); });
  }
  const [low, high] = extent(state.x);
  state.isLog = high > 10 * low;
  byId("log-scale").checked = state.isLog;
  byId("log-scale").addEventListener("change", (event) => { state.isLog = event.target.checked; drawAll(); });
  for (const id of ["show-beaten", "show-broken", "show-far", "show-errors"]) byId(id).addEventListener("change", drawAll);
  byId("clear-filters").addEventListener("click", clearAll);
  for (const button of document.querySelectorAll(".pick")) {
    button.addEventListener("click", () => {
      pick(frontById.get(Number(button.dataset.design)));
      scatter.scrollIntoView({ block: "center" });
    });
  }
}

makeControls();
makeTyped();
filtersChanged();
new ResizeObserver(drawAll).observe(scatter);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
const drawNow = () => { drawCloud(); drawOverlay(); drawParallel(); };
window.addEventListener("beforeprint", drawNow);
window.addEventListener("afterprint", drawNow);
requestAnimationFrame(() => {
  pick(frontById.get(recommendedId) || null);
  sayReady();
});

// For scripts and tests: where a design of the front lies in the picture.
window.capplanReport = {
  placeOf: (id) => {
    const design = frontById.get(id);
    return { x: plot.x.place(design.values[state.x]), y: plot.y.place(design.values[state.y]) };
  },
};
