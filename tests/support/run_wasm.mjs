// Runs an exported module on rows that come as JSON, for the tests.
import { readFileSync } from "node:fs";

const [, , path, repetitions] = process.argv;
const { load } = await import(path.replace(/wasm$/, "mjs"));
const model = await load(readFileSync(path));
const rows = JSON.parse(readFileSync(0));
const outputs = rows.map((row) => {
  const result = model.predict(...row);
  const every = model.outputs.length > 1 ? result : [result];
  return every.map((output) => Array.from(output, Number));
});
let milliseconds = 0;
if (repetitions) {
  const start = performance.now();
  for (let i = 0; i < Number(repetitions); i++) model.predict(...rows[0]);
  milliseconds = (performance.now() - start) / Number(repetitions);
}
console.log(JSON.stringify({ outputs, milliseconds }));
