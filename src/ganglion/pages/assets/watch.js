// Draws a training while it runs, from the events that it sends.
"use strict";
(() => {
  const $ = (name) => document.getElementById(name);
  const colourOf = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let about = {};
  let charts = new Map(); // by their title
  let epochs = [];
  let columns = [];
  let stale = false;

  function reset() {
    for (const chart of charts.values()) chart.figure.remove();
    charts = new Map();
    epochs = [];
    columns = [];
    $("epochs").replaceChildren();
    $("head").replaceChildren();
    $("pictures").hidden = $("table").hidden = true;
  }

  // ---- numbers -----------------------------------------------------------------------

  function short(value) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 1000) return Math.round(value).toLocaleString("en");
    return size < 0.001 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
  }

  function time(seconds) {
    if (!Number.isFinite(seconds)) return "–";
    if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
    const minutes = Math.floor(seconds / 60);
    return `${minutes} min ${Math.round(seconds % 60)} s`;
  }

  // ---- charts ------------------------------------------------------------------------

  // A chart of one measure: while an epoch runs, at its end, and of the validation.
  function chartOf(title) {
    if (charts.has(title)) return charts.get(title);
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const strong = document.createElement("strong");
    strong.textContent = title;
    caption.append(strong);
    const legend = document.createElement("div");
    legend.className = "legend";
    const target = document.createElement("div");
    target.className = "plot";
    target.setAttribute("role", "img");
    figure.append(caption, legend, target);
    $("charts").append(figure);
    const chart = { title, figure, legend, target, lines: new Map(), plot: null };
    charts.set(title, chart);
    return chart;
  }

  function add(title, line, x, y) {
    if (y === null || y === undefined) return;
    const chart = chartOf(title);
    if (!chart.lines.has(line)) {
      chart.lines.set(line, { name: line, xs: [], ys: [] });
      if (chart.plot) chart.plot.destroy();
      chart.plot = null;
    }
    const points = chart.lines.get(line);
    // The end of an epoch may be where its last step was.
    if (points.xs.length && points.xs[points.xs.length - 1] >= x) {
      points.xs.pop();
      points.ys.pop();
    }
    points.xs.push(x);
    points.ys.push(y);
    chart.stale = true;
  }

  const PLACES = { training: 0, validation: 1 };

  function placeOf(chart, name) {
    return name in PLACES ? PLACES[name] : [...chart.lines.keys()].indexOf(name);
  }

  // A loss falls from a height that would flatten all that follows: the first points
  // may leave the chart as soon as there are enough others.
  function limits(chart) {
    const lines = [...chart.lines.values()];
    const last = Math.max(...lines.map(({ xs }) => xs[xs.length - 1]));
    const from = about.first + (last - about.first) / 20;
    const all = lines.flatMap(({ xs, ys }) => ys.filter((_, i) => xs[i] >= from));
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const room = (high - low) * 0.08 || Math.abs(high) / 2 || 1;
    return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
  }

  function options(chart, lines, width) {
    const quiet = colourOf("--quiet");
    const grid = { stroke: colourOf("--line"), width: 1 };
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: quiet, grid, ticks: grid, font };
    return {
      width,
      height: 240,
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false, range: (_, low, high) => [about.first, Math.max(high, about.first + 1)] },
        y: { range: () => limits(chart) },
      },
      series: [{}, ...lines.map((line) => ({
        stroke: colourOf(`--e${placeOf(chart, line.name)}`),
        width: 2,
        spanGaps: true,
        dash: line.name === "validation" ? [6, 3] : [],
        points: { show: (plot, i) => plot.data[i].filter((y) => y != null).length < 3 },
      }))],
      axes: [
        { ...axis, size: 30, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] },
        { ...axis, size: 64, values: (_, values) => values.map(short) },
      ],
    };
  }

  function draw(chart) {
    const width = chart.target.clientWidth;
    if (!width) return;
    const lines = [...chart.lines.values()].filter(({ xs }) => xs.length);
    const data = uPlot.join(lines.map(({ xs, ys }) => [xs, ys]));
    if (!chart.plot || chart.width !== width || chart.shown !== lines.length) {
      if (chart.plot) chart.plot.destroy();
      chart.plot = new uPlot(options(chart, lines, width), data, chart.target);
      [chart.width, chart.shown] = [width, lines.length];
    } else chart.plot.setData(data);
    chart.legend.replaceChildren(...lines.map(({ name, ys }) => {
      const part = document.createElement("span");
      part.className = `e${placeOf(chart, name)}${name === "validation" ? " dashed" : ""}`;
      const alone = lines.length === 1 && name === "training" ? "" : `${name} `;
      part.textContent = alone + short(ys[ys.length - 1]);
      return part;
    }));
    const words = lines.map(({ name, ys }) => `${name} ${short(ys[ys.length - 1])}`);
    chart.target.setAttribute("aria-label", `${chart.title} over epochs: ${words.join(", ")}`);
    chart.stale = false;
  }

  function redraw() {
    if (stale) return;
    stale = true;
    requestAnimationFrame(() => {
      stale = false;
      for (const chart of charts.values()) if (chart.stale) draw(chart);
      document.documentElement.dataset.charts = String(charts.size);
    });
  }

  function anew() {
    for (const chart of charts.values()) {
      if (chart.plot) chart.plot.destroy();
      chart.plot = null;
      chart.stale = true;
    }
    redraw();
  }

  // ---- events ------------------------------------------------------------------------

  function curves(logs, rates, rate, x) {
    for (const [name, value] of Object.entries(logs)) {
      const held = name.startsWith("val_");
      add(held ? name.slice(4) : name, held ? "validation" : "training", x, value);
    }
    for (const [name, value] of Object.entries(rates)) {
      const own = name.replace(/^learning_rate_?/, "");
      add("learning rate", own || "training", x, value);
    }
    add(`${about.unit} a second`, "training", x, rate);
  }

  function facts({ elapsed, rates, rate }, done) {
    $("elapsed").textContent = time(elapsed);
    const first = Object.values(rates)[0];
    $("lr").textContent = short(first);
    if (rate !== null) $("rate").textContent = short(rate);
    if (!about.epochs) return;
    $("progress").value = done / about.epochs;
    // The first steps have waited for the compiler: the clock starts behind them.
    if (!about.start) about.start = { elapsed, done };
    const pace = (elapsed - about.start.elapsed) / (done - about.start.done);
    $("left").textContent = time(pace * (about.epochs - done));
  }

  const handlers = {
    begin(data) {
      reset();
      about = { ...data, first: null };
      document.title = data.name;
      document.querySelector("h1").textContent = data.name;
      document.querySelector(".subtitle").textContent = data.title;
      $("rate-title").textContent = `${data.unit} a second`;
      $("state").textContent = "training";
      for (const name of ["epoch", "rate", "lr", "elapsed", "left"]) $(name).textContent = "–";
    },
    step(data) {
      if (about.first === null) about.first = data.epoch;
      const part = about.steps ? data.step / about.steps : null;
      $("epoch").textContent = `${data.epoch + 1} of ${about.epochs}`
        + (about.steps ? `, step ${data.step} of ${about.steps}` : "");
      if (part === null) return;
      const done = data.epoch + part;
      if (data.rate !== null) about.rated = data.epoch;
      curves(data.logs, data.rates, data.rate, done);
      facts(data, done);
    },
    epoch(data) {
      if (about.first === null) about.first = data.epoch;
      const done = data.epoch + 1;
      $("epoch").textContent = `${done} of ${about.epochs}`;
      // The mean of an epoch whose steps are in the chart is none of them.
      curves(data.logs, data.rates, about.rated === data.epoch ? null : data.rate, done);
      facts(data, done);
      row(data, done);
    },
    maps(data) {
      const section = $("pictures");
      const title = document.createElement("h2");
      title.textContent = `Where it sees the class, after epoch ${data.epoch + 1}`;
      const list = document.createElement("div");
      list.className = "heat";
      list.append(...data.pictures.map((picture) => {
        const figure = document.createElement("figure");
        const image = document.createElement("img");
        image.src = `data:image/png;base64,${picture.png}`;
        const caption = document.createElement("figcaption");
        const wrong = picture.is !== null && picture.is !== picture.said;
        caption.textContent = wrong ? `${picture.said}, is ${picture.is}` : String(picture.said);
        caption.className = wrong ? "wrong" : "";
        image.alt = `Taken for class ${caption.textContent}`;
        figure.append(image, caption);
        return figure;
      }));
      section.replaceChildren(title, list);
      section.hidden = false;
    },
    end(data) {
      $("state").textContent = `finished after ${time(data.seconds)}`;
      $("left").textContent = "–";
      document.documentElement.dataset.state = "finished";
    },
    close() {
      if (!$("state").textContent.startsWith("finished")) $("state").textContent = "stopped";
      $("left").textContent = "–";
      source.close();
      document.documentElement.dataset.closed = "yes";
    },
  };

  function row(data, done) {
    const values = { ...data.logs, ...data.rates, [`${about.unit}/s`]: data.rate, seconds: data.seconds };
    const fresh = Object.keys(values).filter((name) => !columns.includes(name));
    if (fresh.length) {
      columns = [...columns, ...fresh];
      $("head").replaceChildren(...["epoch", ...columns].map((name) => {
        const cell = document.createElement("th");
        cell.scope = "col";
        cell.className = "n";
        cell.textContent = name.replaceAll("_", " ");
        return cell;
      }));
    }
    const line = document.createElement("tr");
    const head = document.createElement("th");
    head.scope = "row";
    head.className = "n";
    head.textContent = done;
    line.append(head, ...columns.map((name) => {
      const cell = document.createElement("td");
      cell.className = "n";
      cell.textContent = short(values[name]);
      return cell;
    }));
    epochs.push(line);
    $("epochs").prepend(line);
    $("table").hidden = false;
    document.documentElement.dataset.epochs = String(epochs.length);
  }

  const source = new EventSource("events");
  for (const [kind, handler] of Object.entries(handlers))
    source.addEventListener(kind, (event) => {
      handler(JSON.parse(event.data));
      redraw();
    });
  source.addEventListener("error", () => {
    // Ganglion has gone without a word; what is shown stays.
    if (source.readyState !== EventSource.OPEN) source.close();
    if (!document.documentElement.dataset.closed) $("state").textContent = "no longer connected";
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", anew);
  new ResizeObserver(() => {
    for (const chart of charts.values())
      if (chart.target.clientWidth !== chart.width) chart.stale = true;
    redraw();
  }).observe(document.body);
})();
