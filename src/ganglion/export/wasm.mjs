// Loads and calls a model that Ganglion exported to WebAssembly.
//
//   import { load } from "./digits.mjs";
//   const digits = await load("digits.wasm");         // an address, or the bytes
//   const probabilities = digits.predict(pixels);     // numbers of one row
//
// Several inputs are as many arguments; several outputs come as a list. A text is a
// string, several texts of a row are a list of strings.

const TYPES = {
  float32: Float32Array, float64: Float64Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array,
  uint64: BigUint64Array, bool: Uint8Array, text: Uint32Array,
};

// What the C library has, and WebAssembly has not: `sinf` is Math.sin.
const maths = new Proxy({}, {
  get: (_, name) => name.startsWith("fmod") ? (x, y) => x % y
    : Math[name] ?? Math[name.replace(/f$/, "")],
});

export async function load(source) {
  let bytes = source;
  if (typeof source === "string" || source instanceof URL) {
    bytes = await (await fetch(source)).arrayBuffer();
  }
  const module = await WebAssembly.compile(bytes);
  const instance = await WebAssembly.instantiate(module, { env: maths });
  const { memory, predict } = instance.exports;
  const [section] = WebAssembly.Module.customSections(module, "ganglion");
  const about = JSON.parse(new TextDecoder().decode(section));
  const view = ({ shape, type, address }) => {
    const size = shape.reduce((product, n) => product * n, 1);
    return new TYPES[type](memory.buffer, address, size);
  };
  // Texts lie behind all else, each with a zero at its end; returns where they begin.
  const write = (texts, start) => {
    const bytes = texts.map((text) => new TextEncoder().encode(`${text}\0`));
    const starts = [];
    let end = start;
    for (const text of bytes) {
      starts.push(end);
      end += text.length;
    }
    const missing = end - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    const all = new Uint8Array(memory.buffer);
    bytes.forEach((text, i) => all.set(text, starts[i]));
    return { starts, end };
  };
  return {
    ...about,
    predict(...rows) {
      const count = about.inputs.length;
      if (rows.length !== count)
        throw new RangeError(`${count} inputs, got ${rows.length}`);
      let free = about.end;
      rows.forEach((given, i) => {
        const input = about.inputs[i], isText = input.type === "text";
        let row = ArrayBuffer.isView(given) ? given : [given].flat(Infinity);
        if (isText) ({ starts: row, end: free } = write(row, free));
        const place = view(input);
        if (row.length !== place.length)
          throw new RangeError(`${input.name}: ${place.length} ` +
            `${isText ? "texts" : "numbers"}, got ${row.length}`);
        const isBig = typeof place[0] === "bigint"; // whole numbers of 64 bits
        place.set(isBig ? Array.from(row, BigInt) : row);
      });
      predict();
      const results = about.outputs.map((output) => view(output).slice());
      return results.length === 1 ? results[0] : results;
    },
  };
}
