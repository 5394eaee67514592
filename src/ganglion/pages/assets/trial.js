// Asks a model about what is drawn, dropped, taken, pasted or written, while it changes.
"use strict";
(async () => {
  const $ = (name) => document.getElementById(name);
  const dataOf = (name) => ($(name) ? JSON.parse($(name).textContent) : null);
  const about = dataOf("interface");
  const heat = dataOf("heat-colours");
  const module = dataOf("module");
  const { image, classes, head } = about;
  const shape = about.inputs[0].shape;
  const size = shape.reduce((product, side) => product * side, 1);
  const MOST_BARS = 12;
  const INK = 0.72; // of the side: MNIST's digits fill 20 of 28 pixels
  const PEN = 0.075; // width of the pen, of the side

  // ---- asking ------------------------------------------------------------------------

  // By the server: it gives probabilities, and a map of the likeliest class.
  async function askServer(row) {
    const answer = await fetch("predict", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ rows: [row], ...(about.maps ? { maps: true } : {}) }),
    });
    const said = await answer.json();
    if (!answer.ok) throw new Error(said.error);
    const map = said.maps && { rows: said.maps[0], width: said.maps[0][0].length };
    return {
      values: said.probabilities ? said.probabilities[0] : said.outputs[0],
      map: map && { values: map.rows.flat(), width: map.width },
    };
  }

  function probabilities(scores) {
    if (head === "logits" && scores.length > 1) {
      const most = Math.max(...scores);
      const powers = scores.map((score) => Math.exp(score - most));
      const sum = powers.reduce((total, power) => total + power, 0);
      return powers.map((power) => power / sum);
    }
    if (head === "logits") scores = scores.map((score) => 1 / (1 + Math.exp(-score)));
    return head !== "values" && scores.length === 1 ? [1 - scores[0], scores[0]] : scores;
  }

  // By WebAssembly: it gives scores, and where it can a map of the likeliest class.
  async function ownModel() {
    const text = atob(module.bytes);
    const bytes = Uint8Array.from(text, (sign) => sign.charCodeAt(0));
    const model = await load(bytes);
    const several = about.inputs.length > 1;
    const flat = (values) => [values].flat(Infinity);
    return (row) => {
      const given = several ? about.inputs.map(({ name }) => row[name]) : [row];
      const missing = given.findIndex((values) => values === undefined);
      if (missing >= 0) throw new Error(`“${about.inputs[missing].name}” is missing.`);
      const outputs = model.predict(...given.map(flat));
      if (about.outputs.length > 1) {
        const named = about.outputs.map(({ name }, i) => [name, Array.from(outputs[i])]);
        return { values: Object.fromEntries(named) };
      }
      const [scores, map] = module.map_width ? outputs : [outputs];
      return {
        values: probabilities(Array.from(scores)),
        map: map && { values: Array.from(map), width: module.map_width },
      };
    };
  }

  // While one question is answered, only the newest of the others is kept.
  let ask = null;
  let waiting = null;
  let busy = false;
  let round = 0; // answers to what is no longer there are not shown

  async function question(row, since) {
    waiting = { row, since };
    if (busy || !ask) return;
    setBusy(true);
    while (waiting) {
      const { row: asked, since: start } = waiting;
      waiting = null;
      const began = performance.now();
      const asking = round;
      try {
        const answer = await ask(asked);
        if (asking !== round) continue;
        show(answer);
        told(performance.now() - began, start);
      } catch (error) {
        if (asking === round) refuse(error.message);
      }
    }
    setBusy(false);
  }

  // A screen reader waits for the last of several answers.
  function setBusy(now) {
    busy = now;
    $("said").setAttribute("aria-busy", String(now));
  }

  function told(milliseconds, since) {
    const where = module ? "in this browser" : "by the server";
    $("time").textContent = `Answered ${where} in ${milliseconds.toFixed(1)} ms.`;
    const root = document.documentElement.dataset;
    root.answers = String(Number(root.answers || 0) + 1);
    // From the event to here; the bars are on the screen with the next frame.
    if (since) root.milliseconds = (performance.now() - since).toFixed(2);
  }

  // ---- showing -----------------------------------------------------------------------

  const percent = (share) => `${(100 * share).toFixed(share > 0.9995 ? 0 : 1)} %`;

  function say(text, bad = false) {
    $("said").textContent = text;
    $("said").classList.toggle("bad", bad);
  }

  function refuse(text) {
    round += 1;
    say(text, true);
    $("bars").replaceChildren();
    showMap(null);
  }

  function nothing() {
    round += 1;
    waiting = null;
    say("Nothing yet.");
    $("bars").replaceChildren();
    $("time").textContent = "";
    showMap(null);
    if ($("seen")) $("seen").getContext("2d").clearRect(0, 0, $("seen").width, $("seen").height);
  }

  function show({ values, map }) {
    if (!classes.length) {
      showValues(values);
      return;
    }
    const order = values.map((_, i) => i).sort((a, b) => values[b] - values[a]);
    const best = order[0];
    say(`${classes[best]}, ${percent(values[best])}`);
    $("said").dataset.class = classes[best];
    const shown = classes.length <= MOST_BARS ? classes.map((_, i) => i) : order.slice(0, MOST_BARS);
    const lines = bars(shown.length);
    shown.forEach((i, at) => {
      const [name, track, value] = lines[at].children;
      name.textContent = name.title = classes[i];
      track.firstChild.style.width = percent(values[i]).replace(" ", "");
      value.textContent = percent(values[i]);
      lines[at].classList.toggle("best", i === best);
    });
    showMap(map);
  }

  // The lines of the bars; those that are there already are used again.
  function bars(count) {
    const list = $("bars");
    while (list.children.length > count) list.lastChild.remove();
    while (list.children.length < count) {
      const line = document.createElement("li");
      for (const kind of ["name", "track", "value"]) {
        const part = document.createElement("span");
        part.className = kind;
        line.append(part);
      }
      const bar = document.createElement("span");
      bar.className = "bar";
      line.children[1].append(bar);
      list.append(line);
    }
    return [...list.children];
  }

  function showValues(values) {
    const flat = (typeof values === "object" && !Array.isArray(values)
      ? Object.entries(values)
      : [values].flat(Infinity).map((value, i) => [i, value]));
    say(flat.length === 1 ? String(Number(flat[0][1].toPrecision(6))) : `${flat.length} numbers`);
    $("bars").className = "values";
    $("bars").replaceChildren(...(flat.length === 1 ? [] : flat).slice(0, 200).map(([key, value]) => {
      const line = document.createElement("li");
      const name = document.createElement("span");
      name.textContent = key;
      const number = document.createElement("span");
      number.textContent = typeof value === "number" ? value.toPrecision(5) : JSON.stringify(value);
      line.append(name, number);
      return line;
    }));
  }

  let lastMap = null;

  function showMap(map) {
    lastMap = map;
    const canvas = $("heat");
    if (!canvas) return;
    const shown = Boolean(map && heat && $("where") && $("where").checked);
    canvas.hidden = !shown;
    document.documentElement.dataset.map = shown ? "shown" : "none";
    if (!shown) return;
    const { values, width } = map;
    canvas.width = width;
    canvas.height = values.length / width;
    // Grad-CAM leaves out what speaks against the class: its zero stays zero.
    const low = about.maps === "cam" ? Math.min(...values) : 0;
    const span = Math.max(...values) - low;
    const pixels = new ImageData(width, canvas.height);
    values.forEach((value, i) => {
      const share = span > 0 ? (value - low) / span : 0;
      pixels.data.set([...heat[Math.round(255 * share)], 153 * share], 4 * i);
    });
    canvas.getContext("2d").putImageData(pixels, 0, 0);
  }

  // ---- pictures as rows --------------------------------------------------------------

  // As Pillow does it: a triangle as wide as a new pixel, at least as an old one.
  function weights(length, from, to, count) {
    const scale = (to - from) / count;
    const reach = Math.max(scale, 1);
    return Array.from({ length: count }, (_, i) => {
      const middle = from + (i + 0.5) * scale;
      const first = Math.max(0, Math.trunc(middle - reach + 0.5));
      const last = Math.min(length, Math.trunc(middle + reach + 0.5));
      const parts = [];
      for (let at = first; at < last; at += 1)
        parts.push(Math.max(0, 1 - Math.abs(at + 0.5 - middle) / reach));
      const sum = parts.reduce((total, part) => total + part, 0);
      return { first, parts: parts.map((part) => part / sum) };
    });
  }

  // A plane of numbers (rows, columns), a box of it, as one of another size.
  function resampled(plane, [left, top, right, bottom], width, height) {
    const across = weights(plane.width, left, right, width);
    const down = weights(plane.height, top, bottom, height);
    const lines = new Float32Array(plane.height * width);
    const begin = down[0].first;
    const end = down[height - 1].first + down[height - 1].parts.length;
    for (let y = begin; y < end; y += 1) {
      across.forEach(({ first, parts }, x) => {
        let sum = 0;
        const start = y * plane.width + first;
        for (let i = 0; i < parts.length; i += 1) sum += parts[i] * plane.values[start + i];
        lines[y * width + x] = Math.round(sum);
      });
    }
    const values = new Float32Array(width * height);
    down.forEach(({ first, parts }, y) => {
      for (let x = 0; x < width; x += 1) {
        let sum = 0;
        for (let i = 0; i < parts.length; i += 1) sum += parts[i] * lines[(first + i) * width + x];
        values[y * width + x] = Math.round(sum);
      }
    });
    return { values, width, height };
  }

  function planes({ data, width, height }) {
    const plane = (of) => {
      const values = new Float32Array(width * height);
      for (let i = 0; i < values.length; i += 1) values[i] = of(4 * i);
      return { values, width, height };
    };
    if (image.color === "grayscale")
      return [plane((i) => (data[i] * 19595 + data[i + 1] * 38470 + data[i + 2] * 7471 + 32768) >> 16)];
    const channels = image.color === "rgba" ? [0, 1, 2, 3] : [0, 1, 2];
    return channels.map((channel) => plane((i) => data[i + channel]));
  }

  // Cut out, squeezed or padded to the model's size, as it was trained.
  function fitted(plane) {
    const [rows, columns] = image.size;
    const { width, height } = plane;
    const whole = [0, 0, width, height];
    if (image.fit === "resize") return resampled(plane, whole, columns, rows);
    const wide = width / height > columns / rows;
    if (image.fit === "pad") {
      const inner = wide ? [columns, Math.round((columns * height) / width)]
        : [Math.round((rows * width) / height), rows];
      const small = resampled(plane, whole, ...inner);
      const values = new Float32Array(rows * columns);
      const [left, top] = [Math.round((columns - inner[0]) / 2), Math.round((rows - inner[1]) / 2)];
      for (let y = 0; y < inner[1]; y += 1)
        values.set(small.values.subarray(y * inner[0], (y + 1) * inner[0]), (y + top) * columns + left);
      return { values, width: columns, height: rows };
    }
    const cut = wide ? [(height * columns) / rows, height] : [width, (width * rows) / columns];
    const [left, top] = [(width - cut[0]) / 2, (height - cut[1]) / 2];
    return resampled(plane, [left, top, left + cut[0], top + cut[1]], columns, rows);
  }

  function interleaved(channels) {
    const row = new Array(channels.length * channels[0].values.length);
    channels.forEach(({ values }, c) => {
      for (let i = 0; i < values.length; i += 1) row[i * channels.length + c] = values[i];
    });
    return row;
  }

  function see(channels) {
    const [rows, columns] = image.size;
    const pixels = new ImageData(columns, rows);
    for (let i = 0; i < rows * columns; i += 1) {
      for (let c = 0; c < 3; c += 1)
        pixels.data[4 * i + c] = channels[Math.min(c, channels.length - 1)].values[i];
      pixels.data[4 * i + 3] = 255;
    }
    $("seen").getContext("2d").putImageData(pixels, 0, 0);
  }

  function askPicture(source, width, height, since) {
    // More detail than this would only be averaged away.
    const enough = Math.max(4 * Math.max(...image.size), 256) / Math.min(width, height);
    const scale = Math.min(1, enough);
    const canvas = new OffscreenCanvas(Math.round(width * scale), Math.round(height * scale));
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.imageSmoothingQuality = "high";
    if (image.background !== null && image.color !== "rgba") {
      const level = image.background;
      context.fillStyle = `rgb(${level} ${level} ${level})`;
      context.fillRect(0, 0, canvas.width, canvas.height);
    }
    context.drawImage(source, 0, 0, canvas.width, canvas.height);
    const channels = planes(context.getImageData(0, 0, canvas.width, canvas.height)).map(fitted);
    see(channels);
    question(interleaved(channels), since);
  }

  // ---- drawing -----------------------------------------------------------------------

  function drawing() {
    const pad = $("pad");
    const context = pad.getContext("2d", { willReadFrequently: true });
    const strokes = []; // of points from 0 to 1
    let stroke = null;
    const pen = { x: 0.5, y: 0.5 };

    function paint() {
      const side = pad.width;
      const paper = $("dark").checked ? "#fff" : "#000";
      context.fillStyle = paper;
      context.fillRect(0, 0, side, side);
      context.strokeStyle = $("dark").checked ? "#000" : "#fff";
      context.lineWidth = PEN * side;
      context.lineCap = context.lineJoin = "round";
      for (const points of strokes) {
        context.beginPath();
        context.moveTo(points[0].x * side, points[0].y * side);
        for (const { x, y } of points) context.lineTo(x * side, y * side);
        context.stroke();
      }
    }

    // The ink alone, 0 to 255, as a plane, and the box around it.
    function ink() {
      const { data, width, height } = context.getImageData(0, 0, pad.width, pad.height);
      const values = new Float32Array(width * height);
      let [left, top, right, bottom] = [width, height, 0, 0];
      for (let i = 0; i < values.length; i += 1) {
        values[i] = $("dark").checked ? 255 - data[4 * i] : data[4 * i];
        if (values[i] < 16) continue;
        const [x, y] = [i % width, Math.floor(i / width)];
        [left, right] = [Math.min(left, x), Math.max(right, x + 1)];
        [top, bottom] = [Math.min(top, y), Math.max(bottom, y + 1)];
      }
      return { plane: { values, width, height }, box: [left, top, right, bottom] };
    }

    // As the digits of MNIST were made: sized by their box, centred by their mass.
    function centred({ plane, box }) {
      const [rows, columns] = image.size;
      const most = INK * Math.min(rows, columns);
      const scale = most / Math.max(box[2] - box[0], box[3] - box[1]);
      let [mass, x, y] = [0, 0, 0];
      plane.values.forEach((value, i) => {
        mass += value;
        x += value * ((i % plane.width) + 0.5);
        y += value * (Math.floor(i / plane.width) + 0.5);
      });
      // A box around the middle of the mass that becomes the whole picture.
      const [halfWidth, halfHeight] = [columns / scale / 2, rows / scale / 2];
      const [left, top] = [x / mass - halfWidth, y / mass - halfHeight];
      return cut(plane, left, top, 2 * halfWidth, 2 * halfHeight);
    }

    // A box of the plane that may reach beyond it, where there is no ink.
    function cut(plane, left, top, width, height) {
      const [rows, columns] = image.size;
      const [x0, y0] = [Math.floor(left), Math.floor(top)];
      const wide = Math.ceil(left + width) - x0;
      const high = Math.ceil(top + height) - y0;
      const values = new Float32Array(wide * high);
      for (let y = Math.max(0, y0); y < Math.min(plane.height, y0 + high); y += 1)
        for (let x = Math.max(0, x0); x < Math.min(plane.width, x0 + wide); x += 1)
          values[(y - y0) * wide + x - x0] = plane.values[y * plane.width + x];
      const box = [left - x0, top - y0, left - x0 + width, top - y0 + height];
      return resampled({ values, width: wide, height: high }, box, columns, rows);
    }

    function changed(since = performance.now()) {
      paint();
      if (!strokes.length) {
        nothing();
        return;
      }
      const drawn = ink();
      const whole = [0, 0, pad.width, pad.height];
      const plane = $("center").checked ? centred(drawn)
        : resampled(drawn.plane, whole, image.size[1], image.size[0]);
      if ($("dark").checked) plane.values = plane.values.map((value) => 255 - value);
      see([plane]);
      question(Array.from(plane.values), since);
    }

    const at = (event) => {
      const box = pad.getBoundingClientRect();
      return { x: (event.clientX - box.left) / box.width, y: (event.clientY - box.top) / box.height };
    };
    pad.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      pad.setPointerCapture(event.pointerId);
      stroke = [at(event)];
      strokes.push(stroke);
      changed(event.timeStamp);
    });
    pad.addEventListener("pointermove", (event) => {
      if (!stroke || !event.buttons) return;
      const events = event.getCoalescedEvents ? event.getCoalescedEvents() : [];
      stroke.push(...(events.length ? events : [event]).map(at));
      changed(event.timeStamp);
    });
    for (const kind of ["pointerup", "pointercancel"])
      pad.addEventListener(kind, () => { stroke = null; });

    function movePen() {
      $("pen").style.left = `${100 * pen.x}%`;
      $("pen").style.top = `${100 * pen.y}%`;
      $("pen").classList.toggle("down", Boolean(stroke));
    }
    const undo = () => { stroke = null; strokes.pop(); movePen(); changed(); };
    const clear = () => { stroke = null; strokes.length = 0; movePen(); changed(); };
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    pad.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key in steps) {
        const length = event.shiftKey ? 0.01 : 0.04;
        pen.x = Math.max(0, Math.min(1, pen.x + length * steps[event.key][0]));
        pen.y = Math.max(0, Math.min(1, pen.y + length * steps[event.key][1]));
        if (stroke) {
          stroke.push({ ...pen });
          changed(event.timeStamp);
        }
      } else if (event.key === " ") {
        stroke = stroke ? null : [{ ...pen }];
        if (stroke) {
          strokes.push(stroke);
          changed(event.timeStamp);
        }
      } else if (event.key === "Backspace") undo();
      else if (event.key === "Delete") clear();
      else return;
      event.preventDefault();
      $("pen").hidden = false;
      movePen();
    });
    pad.addEventListener("blur", () => { $("pen").hidden = true; stroke = null; });
    $("undo").addEventListener("click", undo);
    $("clear").addEventListener("click", clear);
    $("center").addEventListener("change", () => changed());
    $("dark").addEventListener("change", () => changed());
    paint();
    return changed;
  }

  // ---- pictures of files, the clipboard and the camera -------------------------------

  function picturing() {
    let last = null;

    async function take(file) {
      const since = performance.now();
      try {
        last = await createImageBitmap(file);
      } catch {
        refuse(`${file.name || "This"} is no picture that the browser can read.`);
        return;
      }
      $("drop").querySelector("span").textContent = file.name || "A picture from the clipboard";
      askPicture(last, last.width, last.height, since);
    }

    const drop = $("drop");
    $("file").addEventListener("change", () => $("file").files[0] && take($("file").files[0]));
    for (const kind of ["dragenter", "dragover"])
      document.addEventListener(kind, (event) => {
        event.preventDefault();
        drop.classList.add("over");
      });
    for (const kind of ["dragleave", "drop"])
      document.addEventListener(kind, (event) => {
        event.preventDefault();
        drop.classList.remove("over");
      });
    document.addEventListener("drop", (event) => {
      const file = event.dataTransfer.files[0];
      if (!file) return;
      choose("picture");
      take(file);
    });
    document.addEventListener("paste", (event) => {
      const file = [...event.clipboardData.files].find(({ type }) => type.startsWith("image/"));
      if (!file) return;
      choose("picture");
      take(file);
    });

    const video = $("video");
    const media = navigator.mediaDevices;
    if (!media) $("camera").hidden = true; // pages from other machines get none without https
    async function film() {
      if (video.srcObject) {
        endFilm();
        return;
      }
      try {
        video.srcObject = await media.getUserMedia({ video: { facingMode: "environment" } });
      } catch (error) {
        refuse(`There is no camera to use: ${error.message}`);
        return;
      }
      await video.play();
      video.hidden = $("shoot").hidden = false;
      $("camera").textContent = "Camera off";
      let asked = 0;
      const frame = (now) => {
        if (!video.srcObject) return;
        if (now - asked > 200 && !busy && !$("picture").hidden) {
          asked = now;
          askPicture(video, video.videoWidth, video.videoHeight, performance.now());
        }
        requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
    }
    function endFilm() {
      if (video.srcObject) video.srcObject.getTracks().forEach((track) => track.stop());
      video.srcObject = null;
      video.hidden = $("shoot").hidden = true;
      $("camera").textContent = "Camera";
    }
    $("camera").addEventListener("click", film);
    $("shoot").addEventListener("click", async () => {
      last = await createImageBitmap(video);
      endFilm();
      askPicture(last, last.width, last.height, performance.now());
    });
    return () => (last ? askPicture(last, last.width, last.height) : nothing());
  }

  // ---- numbers, texts, JSON ----------------------------------------------------------

  function numbers() {
    const field = $("row");
    const changed = () => {
      const words = field.value.split(/[\s,;[\]]+/).filter(Boolean);
      const bad = words.find((word) => !Number.isFinite(Number(word)));
      if (!words.length) nothing();
      else if (bad !== undefined) refuse(`“${bad.slice(0, 30)}” is no number.`);
      else if (words.length !== size) refuse(`${words.length} numbers; the model takes ${size}.`);
      else {
        const row = words.map(Number);
        if (image) {
          const channels = size / (image.size[0] * image.size[1]);
          see(Array.from({ length: channels }, (_, c) => ({
            values: row.filter((_value, i) => i % channels === c),
          })));
        }
        question(row, performance.now());
      }
    };
    field.addEventListener("input", changed);
    return changed;
  }

  function texts() {
    const changed = () => ($("words").value.trim() ? question($("words").value) : nothing());
    $("words").addEventListener("input", changed);
    return changed;
  }

  function objects() {
    const changed = () => {
      try {
        question(JSON.parse($("object").value));
      } catch (error) {
        refuse(error.message);
      }
    };
    $("object").addEventListener("input", changed);
    return changed;
  }

  // ---- the whole ---------------------------------------------------------------------

  const panels = { draw: drawing, picture: picturing, numbers, text: texts, json: objects };
  const renew = {};
  for (const way of about.ways) renew[way] = panels[way]();

  function choose(way) {
    for (const name of about.ways) $(name).hidden = name !== way;
    document.querySelector(`[name=way][value=${way}]`).checked = true;
  }
  document.addEventListener("change", ({ target }) => {
    if (target.name !== "way") return;
    choose(target.value);
    renew[target.value]();
  });
  if ($("where")) $("where").addEventListener("change", () => showMap(lastMap));

  try {
    ask = module ? await ownModel() : askServer;
  } catch (error) {
    refuse(`The model does not run in this browser: ${error.message}`);
    return;
  }
  document.documentElement.dataset.ready = "yes";
  if (waiting) question(waiting.row, waiting.since);
})();
