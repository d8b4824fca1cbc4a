// How does the picture of two figures come about? Axes, the cloud of designs, the front with its errors, and what is pointed at.

function colours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["paper", "ink", "soft", "line", "accent", "warm", "faint", "broken"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function fitted(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

const font = "13px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const scatter = byId("scatter"), tip = byId("tip");
const margin = { left: 70, right: 36, top: 26, bottom: 44 };
const plot = { width: 0, height: 0, x: null, y: null, cells: null };
const px = new Float32Array(cloud.rows), py = new Float32Array(cloud.rows);

function isShown(row) {
  if (isOnFront[row]) return false;
  return byId(cloud.columns.broken[row] ? "show-broken" : "show-beaten").checked;
}

function drawCloud() {
  const { width, height } = scatter.getBoundingClientRect();
  Object.assign(plot, { width, height });
  const paint = colours();
  const context = fitted(byId("cloud"), width, height);
  // Around the front there is room already; the ends of all designs would lie on the edges.
  const room = byId("show-far").checked ? undefined : 0;
  plot.y = scale(extent(state.y), state.isLog, height - margin.bottom, margin.top, room);
  context.font = font;
  const labels = heights(height).map((value) => tickText(state.y, value, plot.y));
  margin.left = 12 + Math.max(58, ...labels.map((label) => context.measureText(label).width));
  plot.x = scale(extent(state.x), state.isLog, margin.left, width - margin.right, room);
  drawAxes(context, paint, width, height);
  const xs = cloud.columns[state.x], ys = cloud.columns[state.y];
  for (let row = 0; row < cloud.rows; row += 1) {
    px[row] = plot.x.place(xs[row]);
    py[row] = plot.y.place(ys[row]);
  }
  context.save();
  context.beginPath();
  context.rect(margin.left, margin.top, width - margin.left - margin.right, height - margin.top - margin.bottom);
  context.clip();
  const size = cloud.rows > 20000 ? 2 : 3;
  const shows = { broken: byId("show-broken").checked, beaten: byId("show-beaten").checked };
  for (const [kind, isKept] of [["broken", 0], ["beaten", 0], ["broken", 1], ["beaten", 1]]) {
    if (!shows[kind]) continue;
    context.fillStyle = paint[kind === "broken" ? "broken" : "faint"];
    context.globalAlpha = isKept ? 0.9 : 0.15;
    for (let row = 0; row < cloud.rows; row += 1) {
      if (kept[row] !== isKept || isOnFront[row] || (cloud.columns.broken[row] > 0) !== (kind === "broken")) continue;
      if (!(px[row] > 0 && px[row] < width && py[row] > 0 && py[row] < height)) continue;
      context.fillRect(px[row] - size / 2, py[row] - size / 2, size, size);
    }
  }
  context.globalAlpha = 1;
  drawFront(context, paint);
  context.restore();
  sayBeyond(width, height);
  indexCells();
}

function isInside(row, width, height) {
  return px[row] >= margin.left && px[row] <= width - margin.right
    && py[row] >= margin.top && py[row] <= height - margin.bottom;
}

function sayBeyond(width, height) {
  let count = 0;
  for (let row = 0; row < cloud.rows; row += 1) {
    if (kept[row] && isShown(row) && !isInside(row, width, height)) count += 1;
  }
  byId("num-beyond").textContent = count
    ? `${formats.count(count)} of the designs on this page lie outside the picture, which is drawn around the front; `
      + "“designs far from the front” includes them."
    : "All selected designs lie within the picture.";
}

// The numbers of the vertical axis.
function heights(height) {
  return ticks(state.y, plot.y, Math.max(2, Math.floor((height - margin.bottom - margin.top) / 45)));
}

function drawAxes(context, paint, width, height) {
  context.font = font;
  context.strokeStyle = paint.line;
  context.fillStyle = paint.soft;
  context.lineWidth = 1;
  const bottom = height - margin.bottom, right = width - margin.right;
  context.textAlign = "center";
  let end = -Infinity;
  for (const value of ticks(state.x, plot.x, Math.max(2, Math.floor((right - margin.left) / 95)))) {
    const x = Math.round(plot.x.place(value)) + 0.5;
    context.beginPath(); context.moveTo(x, margin.top); context.lineTo(x, bottom); context.stroke();
    const label = tickText(state.x, value, plot.x), half = context.measureText(label).width / 2;
    if (x - half < end + 8) continue;  // equal steps are crowded at the end of a logarithmic axis
    context.fillText(label, x, bottom + 17);
    end = x + half;
  }
  context.textAlign = "right";
  for (const value of heights(height)) {
    const y = Math.round(plot.y.place(value)) + 0.5;
    context.beginPath(); context.moveTo(margin.left, y); context.lineTo(right, y); context.stroke();
    context.fillText(tickText(state.y, value, plot.y), margin.left - 6, y + 4);
  }
  context.fillStyle = paint.ink;
  context.textAlign = "right";
  context.fillText(`${metrics[state.x].name} →`, right, height - 8);
  context.textAlign = "left";
  context.fillText(`↑ ${metrics[state.y].name}`, 4, 14);
}

function symbol(context, paint, design, x, y) {
  context.beginPath();
  if (design.role === "recommended") {
    context.moveTo(x, y - 6); context.lineTo(x + 6, y); context.lineTo(x, y + 6); context.lineTo(x - 6, y);
    context.closePath();
    context.fillStyle = paint.warm;
  } else {
    context.arc(x, y, design.role === "tied" ? 8 : 5, 0, 2 * Math.PI);
    context.fillStyle = paint.accent;
  }
  if (design.role !== "tied") context.fill();
  context.lineWidth = design.role === "tied" ? 3 : 1.5;
  context.strokeStyle = design.role === "tied" ? paint.warm : paint.paper;
  context.stroke();
}

function errorBar(context, design, key, axis, from, across) {
  if (!metrics[key].hasError || !(design.interval.high_fraction > design.interval.low_fraction)) return;
  // On a wide logarithmic axis a bar would hide below its symbol, so that it has ends, as wide as the symbol.
  const ends = errorEnds(design, key, 1).map(axis.place), cap = 7;
  context.beginPath();
  const line = (along, one, other) => {
    if (across) { context.moveTo(along[0], one); context.lineTo(along[1], other); }
    else { context.moveTo(one, along[0]); context.lineTo(other, along[1]); }
  };
  line(ends, from, from);
  for (const end of ends) line([end, end], from - cap, from + cap);
  context.stroke();
}

function drawFront(context, paint) {
  const order = { front: 0, recommended: 1, tied: 2 };  // rings leave to be seen what lies below them
  const sorted = [...front].sort((one, other) => order[one.role] - order[other.role]);
  for (const design of sorted) {
    const x = plot.x.place(design.values[state.x]), y = plot.y.place(design.values[state.y]);
    context.globalAlpha = isWithin(design.values) ? 1 : 0.15;
    symbol(context, paint, design, x, y);
    if (byId("show-errors").checked) {
      context.strokeStyle = design.role === "front" ? paint.accent : paint.warm;
      context.lineWidth = 1.2;
      errorBar(context, design, state.x, plot.x, y, true);
      errorBar(context, design, state.y, plot.y, x, false);
    }
  }
  context.globalAlpha = 1;
}

// Every cell of 16 pixels knows its designs, so that pointing at one of many thousands takes no time.
const CELL = 16;
function indexCells() {
  const across = Math.ceil(plot.width / CELL) + 1, down = Math.ceil(plot.height / CELL) + 1;
  const starts = new Int32Array(across * down + 1), cellOf = new Int32Array(cloud.rows).fill(-1);
  for (let row = 0; row < cloud.rows; row += 1) {
    const x = px[row], y = py[row];
    if (!kept[row] || !isShown(row) || !isInside(row, plot.width, plot.height)) continue;
    cellOf[row] = Math.floor(y / CELL) * across + Math.floor(x / CELL);
    starts[cellOf[row] + 1] += 1;
  }
  for (let cell = 0; cell < across * down; cell += 1) starts[cell + 1] += starts[cell];
  const next = starts.slice(), rows = new Int32Array(starts[across * down]);
  for (let row = 0; row < cloud.rows; row += 1) if (cellOf[row] >= 0) rows[next[cellOf[row]]++] = row;
  plot.cells = { across, down, starts, rows };
}

function designAt(x, y) {
  let found = null, best = 14 * 14;
  for (const design of front) {
    const dx = plot.x.place(design.values[state.x]) - x, dy = plot.y.place(design.values[state.y]) - y;
    if (dx * dx + dy * dy < best) { best = dx * dx + dy * dy; found = design; }
  }
  if (found) return found;
  best = 9 * 9;
  let row = -1;
  const { across, down, starts, rows } = plot.cells;
  const column = Math.floor(x / CELL), line = Math.floor(y / CELL);
  for (let v = Math.max(0, line - 1); v <= Math.min(down - 1, line + 1); v += 1) {
    for (let u = Math.max(0, column - 1); u <= Math.min(across - 1, column + 1); u += 1) {
      for (let k = starts[v * across + u]; k < starts[v * across + u + 1]; k += 1) {
        const dx = px[rows[k]] - x, dy = py[rows[k]] - y;
        if (dx * dx + dy * dy < best) { best = dx * dx + dy * dy; row = rows[k]; }
      }
    }
  }
  return row >= 0 ? cloudDesign(row) : null;
}

function drawOverlay(box) {
  const paint = colours();
  const context = fitted(byId("overlay"), plot.width, plot.height);
  const looked = state.pointed || state.picked;
  if (box) {
    context.fillStyle = paint.accent;
    context.globalAlpha = 0.15;
    context.fillRect(box.x0, box.y0, box.x1 - box.x0, box.y1 - box.y0);
    context.globalAlpha = 1;
  }
  if (!looked) return;
  const x = plot.x.place(looked.values[state.x]), y = plot.y.place(looked.values[state.y]);
  context.strokeStyle = paint.ink;
  context.lineWidth = 2;
  context.beginPath(); context.arc(x, y, 11, 0, 2 * Math.PI); context.stroke();
}
