// Draws the curves of a report with uPlot, and lets a reader look closer.
"use strict";
(() => {
  const source = JSON.parse(document.getElementById("curves").textContent);
  const shapes = source.shapes.map((outline) => new Path2D(outline));
  // From the eleventh curve on, colours and shapes are mixed anew.
  const shapeAt = (place) => (place + Math.floor(place / shapes.length)) % shapes.length;
  const nameOf = (place) => `e${place % shapes.length}`;
  const DASHES = source.dashes;
  const MOST_NAMES = 14; // more would cover the chart; the switches have them, too
  const NARROW = 640; // pixels; below there is no room for names beside the curves
  const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
  const MARKS = 15; // a curve of more points has a mark at some of them

  const colourOf = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // The points of a curve in one chart; those without a value are left out.
  function points(values, xs) {
    const found = [];
    values.score.forEach((y, i) => {
      const x = xs ? values[xs][i] : i + 1;
      if (x !== null && y !== null) found.push({ x, y, epoch: i + 1 });
    });
    return found;
  }

  function lines(curves, isShown, xs) {
    const made = [];
    for (const curve of curves) {
      const shown = isShown(curve);
      for (const run of curve.runs)
        made.push({ curve, shown, main: false, points: points(run, xs) });
    }
    for (const curve of curves) {
      const held = points(curve.average, xs);
      if (held.length)
        made.push({ curve, shown: isShown(curve), main: true, points: held });
    }
    return made;
  }

  function aligned(made) {
    const tables = made.map((one) => [
      one.points.map((p) => p.x),
      one.points.map((p) => p.y),
    ]);
    return uPlot.join(tables);
  }

  function seriesOf(line) {
    const colour = colourOf(`--${nameOf(line.curve.place)}`);
    return {
      label: line.curve.label,
      show: line.shown,
      stroke: colour,
      alpha: line.main ? 1 : 0.3,
      width: line.main ? 2 : 1,
      dash: DASHES[line.curve.dash % DASHES.length],
      spanGaps: true,
      // A run of one epoch is no line.
      points: { show: !line.main && line.points.length === 1, size: 5, fill: colour },
    };
  }

  function drawMarks(plot, made) {
    const { ctx } = plot;
    const size = 4 * uPlot.pxRatio;
    ctx.save();
    for (const line of made) {
      if (!line.main || !line.shown) continue;
      const every = Math.ceil(line.points.length / MARKS);
      ctx.fillStyle = colourOf(`--${nameOf(line.curve.place)}`);
      line.points.forEach((point, i) => {
        const last = i === line.points.length - 1;
        const x = plot.valToPos(point.x, "x", true);
        const y = plot.valToPos(point.y, "y", true);
        const { left, top, width, height } = plot.bbox;
        if (x < left - 1 || x > left + width + 1) return;
        if (y < top - 1 || y > top + height + 1) return;
        if (i % every && !last) return;
        ctx.setTransform(size, 0, 0, size, x, y);
        ctx.fill(shapes[shapeAt(line.curve.place)]);
      });
    }
    ctx.restore();
  }

  // The curves that get their name: those of the newest race; dashes tell the others.
  function withNames(made) {
    const shown = made.filter((line) => line.main && line.shown);
    const newest = Math.max(...shown.map((line) => line.curve.race));
    const held = shown.filter((line) => line.curve.race === newest);
    return held.length > MOST_NAMES ? [] : held;
  }

  // The last point of every such curve in sight, with its place on the canvas.
  function ends(plot, made) {
    const { left, top, width, height } = plot.bbox;
    return withNames(made)
      .map((line) => {
        const last = line.points[line.points.length - 1];
        const x = plot.valToPos(last.x, "x", true);
        const y = plot.valToPos(last.y, "y", true);
        return { line, x, y };
      })
      .filter(({ x, y }) => x >= left - 1 && x <= left + width + 1
        && y >= top - 1 && y <= top + height + 1);
  }

  function writeName(ctx, name, x, y, fromX, fromY) {
    const colour = colourOf(`--${nameOf(name.line.curve.place)}`);
    ctx.strokeStyle = colour;
    ctx.globalAlpha = 0.5;
    ctx.lineWidth = uPlot.pxRatio;
    ctx.beginPath();
    ctx.moveTo(fromX, fromY);
    ctx.lineTo(x, y);
    ctx.stroke();
    ctx.globalAlpha = 1;
    const size = 4 * uPlot.pxRatio;
    ctx.save();
    ctx.fillStyle = colour;
    ctx.translate(x + 1.8 * size, y);
    ctx.scale(size, size);
    ctx.fill(shapes[shapeAt(name.line.curve.place)]);
    ctx.restore();
    ctx.fillStyle = colourOf("--ink"); // small text in a pale colour is hard to read
    ctx.fillText(name.line.curve.label, x + 3.4 * size, y);
  }

  // All curves end at the same epoch: their names stand in a column beside the chart.
  function namesBeside(plot, made) {
    const { ctx } = plot;
    const px = uPlot.pxRatio;
    const gap = 15 * px;
    const names = ends(plot, made).sort((a, b) => a.y - b.y);
    let free = plot.bbox.top;
    for (const one of names) {
      one.at = Math.max(one.y, free);
      free = one.at + gap;
    }
    let limit = plot.bbox.top + plot.bbox.height;
    for (const one of names.slice().reverse()) {
      one.at = Math.min(one.at, limit);
      limit = one.at - gap;
    }
    for (const one of names)
      writeName(ctx, one, one.x + 18 * px, one.at, one.x + 6 * px, one.y);
  }

  // Curves end at different times: names stand above their ends, in steps, so that no
  // name covers another one or the line that leads to it.
  function namesAbove(plot, made) {
    const { ctx } = plot;
    const px = uPlot.pxRatio;
    const names = ends(plot, made).sort((a, b) => b.x - a.x);
    names.forEach((one, i) => {
      const width = ctx.measureText(one.line.curve.label).width + 22 * px;
      const under = names.slice(0, i).filter((other) => other.x <= one.x + width);
      one.step = Math.max(-1, ...under.map((other) => other.step)) + 1;
    });
    for (const one of names) {
      const y = plot.bbox.top - (10 + 15 * one.step) * px;
      writeName(ctx, one, one.x, y, one.x, one.y - 6 * px);
    }
  }

  function drawNames(plot, made, kind) {
    const { ctx } = plot;
    ctx.save();
    ctx.font = `${12 * uPlot.pxRatio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    (kind === "time" ? namesAbove : namesBeside)(plot, made);
    ctx.restore();
  }

  function axis(label, format) {
    return {
      label,
      labelSize: 22,
      labelFont: "12px system-ui, sans-serif",
      font: "12px system-ui, sans-serif",
      stroke: colourOf("--quiet"),
      grid: { stroke: colourOf("--line"), width: 1 },
      ticks: { stroke: colourOf("--line"), width: 1 },
      values: format,
    };
  }

  const plain = (plot, ticks) => ticks.map((tick) => (tick === null ? "" : `${+tick.toFixed(6)}`));
  const whole = (plot, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? `${tick}` : ""));

  // On a logarithmic axis 1, 2 and 5 of each power of ten get their number.
  const round = (plot, ticks) => ticks.map((tick) => {
    const lead = tick / 10 ** Math.floor(Math.log10(tick) + 1e-9);
    return [1, 2, 5].includes(Number(lead.toPrecision(3))) ? tick : null;
  });

  function widest(made) {
    const ctx = document.createElement("canvas").getContext("2d");
    ctx.font = "12px system-ui, sans-serif";
    const names = withNames(made).map((line) => line.curve.label);
    return Math.max(0, ...names.map((name) => ctx.measureText(name).width));
  }

  function optionsOf(view, made, width) {
    const isTime = view.kind === "time";
    const wide = width >= NARROW;
    const count = withNames(made).length;
    const beside = wide && count ? Math.min(widest(made), width / 3) + 40 : 12;
    const above = wide && isTime ? 16 + 15 * Math.min(count, MOST_NAMES) : 12;
    const most = Math.max(...made.map((line) => line.points.length));
    const marks = (plot) => {
      drawMarks(plot, made);
      if (wide) drawNames(plot, made, view.kind);
    };
    const spread = (plot, low, high) => {
      if (view.log) return [low / 1.15, high * 1.15];
      if (isTime) return [plot.zoomed ? low : 0, high * (plot.zoomed ? 1 : 1.01)];
      if (most === 1) return [0.5, 1.5];
      const room = (high - low) * 0.015;
      return [low - room, high + room];
    };
    return {
      width,
      height: (wide ? 340 : 280) + above,
      padding: [above, beside, 0, wide ? 4 : 0],
      legend: { show: false },
      cursor: {
        points: { show: false },
        y: false,
        drag: { x: true, y: false },
        bind: {
          dblclick: (plot, target, reset) => (event) => {
            plot.zoomed = false;
            return reset(event);
          },
        },
      },
      scales: {
        x: { time: false, distr: view.log ? 3 : 1, range: spread },
        y: { range: (plot, low, high) => {
          if (low === null) return [0, 1];
          // Noise must not look like a difference, unless somebody looks for it.
          const least = plot.zoomed ? 0.0005 : 0.01;
          const room = Math.max((high - low) * 0.06, (least - (high - low)) / 2);
          const most = view.grows ? Math.max(1, high) : Infinity;
          return [low - room, Math.min(high + room, most)];
        } },
      },
      series: [{}, ...made.map(seriesOf)],
      axes: [
        {
          ...axis(isTime ? "seconds" : "epoch", isTime ? plain : whole),
          size: 34,
          ...(view.log ? { filter: round } : { space: 60 }),
          ...(isTime ? {} : { incrs: WHOLE_STEPS }),
        },
        { ...axis(view.score, plain), size: 62 },
      ],
      hooks: {
        draw: [marks],
        setSelect: [(plot) => { plot.zoomed = plot.select.width > 0; }],
        setCursor: [(plot) => read(view, plot, made)],
      },
    };
  }

  // What every curve has reached at the cursor.
  function reached(view, made, x) {
    const found = [];
    for (const line of made) {
      if (!line.main || !line.shown) continue;
      const held = line.points.filter((point) => point.x <= x + 1e-9);
      if (held.length) found.push({ curve: line.curve, point: held[held.length - 1] });
    }
    const best = view.grows ? -1 : 1;
    return found.sort((a, b) => best * (a.point.y - b.point.y));
  }

  function sign(place) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "-1.2 -1.2 2.4 2.4");
    svg.setAttribute("class", `swatch ${nameOf(place)}`);
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", source.shapes[shapeAt(place)]);
    svg.append(path);
    return svg;
  }

  function read(view, plot, made) {
    const { left } = plot.cursor;
    const box = view.reading;
    if (left === null || left === undefined || left < 0) {
      box.hidden = true;
      return;
    }
    const isTime = view.kind === "time";
    const at = plot.posToVal(left, "x");
    const x = isTime ? at : Math.max(1, Math.round(at));
    const title = document.createElement("div");
    title.textContent = isTime ? `after ${x.toFixed(2)} s` : `epoch ${x}`;
    const rows = reached(view, made, x).map(({ curve, point }) => {
      const row = document.createElement("div");
      const name = document.createElement("span");
      name.textContent = isTime ? `${curve.label}, epoch ${point.epoch}` : curve.label;
      const value = document.createElement("b");
      value.textContent = point.y.toFixed(4);
      row.append(sign(curve.place), name, value);
      return row;
    });
    box.replaceChildren(title, ...rows);
    box.hidden = false;
    const start = plot.bbox.left / uPlot.pxRatio;
    const right = plot.bbox.width / uPlot.pxRatio;
    const beside = left < right / 2 ? left + 14 : left - box.offsetWidth - 14;
    const limit = view.target.clientWidth - box.offsetWidth;
    box.style.left = `${Math.max(0, Math.min(start + beside, limit))}px`;
    const under = (plot.bbox.top + plot.bbox.height) / uPlot.pxRatio;
    box.style.top = `${Math.max(0, under - box.offsetHeight - 10)}px`;
  }

  function step(view, event) {
    const plot = view.plot;
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key === "Escape") {
      plot.setCursor({ left: -10, top: -10 });
      return;
    }
    if (!(event.key in moves)) return;
    event.preventDefault();
    const made = view.made.filter((line) => line.main && line.shown);
    const xs = [...new Set(made.flatMap((line) => line.points.map((p) => p.x)))];
    xs.sort((a, b) => a - b);
    if (!xs.length) return;
    const last = xs.length - 1;
    view.at = view.at === undefined
      ? (moves[event.key] > 0 ? 0 : last)
      : Math.max(0, Math.min(last, view.at + moves[event.key]));
    plot.setCursor({ left: plot.valToPos(xs[view.at], "x") + 0.01, top: 10 });
  }

  function draw(view) {
    const width = view.target.clientWidth;
    if (!width) return;
    const made = lines(view.curves, view.isShown, view.kind === "time" ? view.clock : null);
    if (view.plot) view.plot.destroy();
    view.made = made;
    view.width = width;
    view.plot = new uPlot(optionsOf(view, made, width), aligned(made), view.target);
    const canvas = view.target.querySelector("canvas");
    canvas.setAttribute("aria-hidden", "true"); // the group's label and the table say it
    const shown = made.filter((line) => line.main && line.shown);
    view.target.dataset.curves = String(shown.length);
    document.documentElement.dataset.charts = String(
      document.querySelectorAll(".plot[data-curves]").length,
    );
  }

  function viewsOf(room) {
    const chart = source.charts.find((one) => one.name === room.dataset.chart);
    const off = new Set();
    const isShown = (curve) =>
      ["engine", "settings", "race"].every((kind) => !off.has(`${kind} ${curve[kind]}`));
    const views = [...room.querySelectorAll(".plot")].map((target) => {
      const reading = document.createElement("div");
      reading.className = "reading";
      reading.setAttribute("role", "status");
      reading.hidden = true;
      target.append(reading);
      const kind = target.dataset.kind;
      const view = {
        kind, target, reading, isShown, score: chart.score, grows: chart.grows,
        curves: chart.curves, clock: "run", log: false,
      };
      target.addEventListener("keydown", (event) => step(view, event));
      target.addEventListener("blur", () => view.plot.setCursor({ left: -10, top: -10 }));
      return view;
    });
    room.addEventListener("change", ({ target }) => {
      const kind = target.dataset.kind;
      const clocked = views.filter((view) => view.kind === "time");
      if (kind === "clock") clocked.forEach((view) => { view.clock = target.value; });
      else if (kind === "log") clocked.forEach((view) => { view.log = target.checked; });
      else if (target.checked) off.delete(`${kind} ${target.value}`);
      else off.add(`${kind} ${target.value}`);
      views.forEach(draw);
    });
    return views;
  }

  const views = [...document.querySelectorAll(".curves")].flatMap(viewsOf);
  views.forEach(draw);
  const redraw = () => views.forEach(draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => {
    views.filter((view) => view.target.clientWidth !== view.width).forEach(draw);
  }).observe(document.body);
})();
