// What Node's clients share: the commands of ages/program.py.

import { createInterface } from "node:readline";

export const [bootstrap, started] = process.argv.slice(2);
export const t0 = Number(started);
export const value = (number) => `${String(number).padStart(5, "0")} ${"a line that repeats itself ".repeat(4)}`;
export const key = (number) => `key-${number % 10}`;
export const numberOf = (buffer) => Number(buffer.toString().slice(0, 5));
export const numbers = (first, end) => Array.from({ length: end - first }, (_, i) => first + i);

/** Answers commands until there are no more; `commands` take their words as text. */
export async function serve(commands) {
  for await (const line of createInterface({ input: process.stdin })) {
    const [name, ...words] = line.split(" ");
    let answer;
    try {
      answer = (await commands[name](...words)) ?? {};
    } catch (error) {
      console.error(error);
      answer = { error: `${error.name}: ${error.message}` };
    }
    console.log(JSON.stringify(answer));
  }
  process.exit(0);
}
