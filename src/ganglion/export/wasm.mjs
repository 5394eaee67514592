// Loads and calls a model that Ganglion exported to WebAssembly.
//
//   import { load } from "./digits.mjs";
//   const digits = await load("digits.wasm");         // an address, or the bytes
//   const probabilities = digits.predict(pixels);     // numbers of one row
//
// Several inputs are as many arguments; several outputs come as a list.

const TYPES = {
  float32: Float32Array, float64: Float64Array,
  int8: Int8Array, int16: Int16Array, int32: Int32Array, int64: BigInt64Array,
  uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array,
  uint64: BigUint64Array, bool: Uint8Array,
};

// What the C library has, and WebAssembly has not: `sinf` is Math.sin.
const maths = new Proxy({}, {
  get: (_, name) => Math[name] ?? Math[name.replace(/f$/, "")],
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
  const inputs = about.inputs.map(view), outputs = about.outputs.map(view);
  return {
    ...about,
    predict(...rows) {
      rows.forEach((row, i) => {
        if (row.length !== inputs[i].length)
          throw new RangeError(
            `${about.inputs[i].name}: ${inputs[i].length} numbers, got ${row.length}`);
        const isBig = typeof inputs[i][0] === "bigint"; // whole numbers of 64 bits
        inputs[i].set(isBig ? Array.from(row, BigInt) : row);
      });
      predict();
      const results = outputs.map((output) => output.slice());
      return results.length === 1 ? results[0] : results;
    },
  };
}
