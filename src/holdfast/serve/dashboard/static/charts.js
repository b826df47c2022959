// Charts: one fetch for all of a page, drawn by uPlot in the colours of the theme.
"use strict";
(() => {
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const plots = new Map();
  let busy = false;
  let askedAt = 0;

  function said(value, unit) {
    if (value === null || value === undefined) return "";
    if (unit === "s") return value >= 60 ? `${(value / 60).toFixed(1)} min` : value >= 1 ? `${value.toFixed(1)} s` : `${Math.round(value * 1000)} ms`;
    return value.toLocaleString("en", { maximumFractionDigits: 1 });
  }
  const two = (value) => String(value).padStart(2, "0");
  function when(seconds, apart) {
    const at = new Date(seconds * 1000);
    return apart >= 43200 ? `${two(at.getMonth() + 1)}-${two(at.getDate())}` : `${two(at.getHours())}:${two(at.getMinutes())}`;
  }
  function options(element, chart) {
    const axis = { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "11px system-ui, sans-serif" };
    return {
      width: element.clientWidth || 320,
      height: 180,
      cursor: { points: { size: 6 }, drag: { x: false, y: false } },
      scales: { y: { range: (_plot, _low, high) => [0, Math.max(high * 1.08, chart.unit === "s" ? 0.01 : 4)] } },
      axes: [{ ...axis, values: (_plot, ticks, _axis, _space, apart) => ticks.map((tick) => when(tick, apart)) }, { ...axis, size: 62, values: (_plot, ticks) => ticks.map((tick) => said(tick, chart.unit)) }],
      series: [{ value: "{HH}:{mm}" }, ...chart.series.map((one) => ({
        label: one.label,
        stroke: colour(one.colour),
        width: 1.75,
        dash: one.dashed ? [4, 4] : undefined,
        fill: one.filled ? `${colour(one.colour)}22` : undefined,
        spanGaps: false,
        points: { show: false },
        value: (_plot, value) => said(value, chart.unit),
      }))],
    };
  }
  function draw(group, answer) {
    for (const element of group.querySelectorAll("[data-chart]")) {
      const chart = answer.charts[element.dataset.chart];
      if (chart === undefined) continue;
      const data = [answer.at, ...chart.series.map((one) => one.values)];
      const names = chart.series.map((one) => one.label).join();
      const known = plots.get(element);
      if (known !== undefined && known.names === names) known.plot.setData(data);
      else {
        known?.plot.destroy();
        plots.set(element, { plot: new uPlot(options(element, chart), data, element), names, answer });
      }
      plots.get(element).answer = answer;
    }
  }
  async function load() {
    const group = document.querySelector("[data-charts]");
    if (group === null || busy) return;
    busy = true;
    askedAt = Date.now();
    try {
      const address = new URL(group.dataset.charts, location.href); // it may name what it is about
      address.searchParams.set("seconds", group.dataset.seconds);
      const response = await fetch(address, { headers: { Accept: "application/json" } });
      if (response.ok) draw(group, await response.json());
    } catch { /* away; the next look says so */ } finally { busy = false; }
  }
  document.addEventListener("hf:charts", () => { if (Date.now() - askedAt > 2000) load(); });
  document.addEventListener("hf:theme", () => {
    for (const [element, known] of plots) { known.plot.destroy(); plots.delete(element); draw(element.closest("[data-charts]"), known.answer); }
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-range]");
    if (button === null) return;
    for (const other of document.querySelectorAll("[data-range]")) other.setAttribute("aria-pressed", String(other === button));
    document.querySelector("[data-charts]").dataset.seconds = button.dataset.range;
    load();
  });
  new ResizeObserver(() => { for (const [element, known] of plots) known.plot.setSize({ width: element.clientWidth, height: 180 }); }).observe(document.body);
  load();
})();
