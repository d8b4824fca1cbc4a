// How are numbers written, and which ones can be explored? Three digits, a familiar prefix, the unit.

function digits(value) {
  const rounded = Number(value.toPrecision(3));
  const exponent = rounded ? Math.floor(Math.log10(Math.abs(rounded))) : 2;
  const decimals = Math.min(15, Math.max(0, 2 - exponent));
  return rounded.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

function scaled(value, scale) {
  const rounded = Math.abs(Number(value.toPrecision(3)));
  const [size, unit] = scale.find((entry) => rounded >= entry[0]) || scale[scale.length - 1];
  return digits(value / size) + unit;
}

const GIB = 2 ** 30;
const inScale = (...scale) => (value) => scaled(value, scale);
const money = inScale([1e9, " B"], [1e6, " M"], [1e3, " k"], [1, ""]);
const duration = inScale([86400, " days"], [3600, " h"], [60, " min"], [1, " s"]);
const formats = {
  days: (value) => (value >= 730.5 ? `${digits(value / 365.25)} years` : duration(value * 86400)),
  usd: (value) => `$${money(value)}`,
  kwh: inScale([1e9, " TWh"], [1e6, " GWh"], [1e3, " MWh"], [1, " kWh"]),
  kgco2e: inScale([1e6, " kt CO2e"], [1e3, " t CO2e"], [1, " kg CO2e"]),
  w: inScale([1e9, " GW"], [1e6, " MW"], [1e3, " kW"], [1, " W"]),
  bytes: (value) => `${(value / GIB).toFixed(1)} GiB`,
  fraction: (value) => `${(value * 100).toFixed(1)} %`,
  count: (value) => Math.round(value).toLocaleString("en-US"),
};
const metrics = {
  time_to_train_days: { name: "time to train", unit: "days", format: formats.days, hasError: true },
  cost_usd: { name: "cost", unit: "USD", format: formats.usd, hasError: true },
  energy_kwh: { name: "energy", unit: "kWh", format: formats.kwh, hasError: true },
  carbon_kgco2e: { name: "carbon", unit: "kg CO2e", format: formats.kgco2e, hasError: true },
  num_gpus: { name: "accelerators", unit: "count", format: formats.count },
  peak_power_w: { name: "peak power", unit: "W", format: formats.w },
  peak_memory_bytes: { name: "memory of an accelerator", unit: "bytes", format: formats.bytes },
  mfu_fraction: { name: "MFU", unit: "share", format: formats.fraction },
  goodput_fraction: { name: "goodput", unit: "share", format: formats.fraction },
};
const objectiveKeys = {
  time_to_train: "time_to_train_days", cost: "cost_usd", energy: "energy_kwh", carbon: "carbon_kgco2e",
};
const parallelKeys = Object.keys(metrics).filter((key) => key !== "peak_memory_bytes");
