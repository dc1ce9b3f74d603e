// Real servers for the browser test: the program with the offline planner, and the program with keys and a slow model.

import { spawn, execFileSync } from "node:child_process";
import { createServer } from "node:http";
import { mkdtempSync, mkdirSync, readFileSync, existsSync, writeFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

export async function until(what, check, ms = 20_000) {
  const end = Date.now() + ms;
  let last;
  for (;;) {
    try {
      const found = await check();
      if (found) return found;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`not within ${ms} ms: ${what}${last ? ` (${last.message})` : ""}`);
    await sleep(50);
  }
}

const scratch = mkdtempSync(join(tmpdir(), "annie-page-"));
const running = new Set();
export function cleanUp() {
  for (const child of running) child.kill("SIGKILL");
  rmSync(scratch, { recursive: true, force: true });
}

export class Annie {
  constructor(program, name, config) {
    this.program = program;
    this.home = join(scratch, name);
    mkdirSync(this.home, { recursive: true });
    this.config = join(this.home, "annie.toml");
    writeFileSync(this.config, config);
    this.port = 0;
  }

  get environment() {
    return { PATH: process.env.PATH, HOME: this.home, TZ: "UTC" };
  }

  // A file with the key of the server.
  keyFile() {
    const file = join(this.home, "key");
    writeFileSync(file, this.key, { mode: 0o600 });
    return file;
  }

  async start() {
    const ready = join(this.home, "ready.json");
    rmSync(ready, { force: true });
    const args = ["--config", this.config, "serve", "--data", join(this.home, "data"), "--port", String(this.port), "--ready-file", ready];
    this.child = spawn(this.program, args, { env: this.environment, stdio: ["ignore", "ignore", "pipe"] });
    this.log = "";
    this.child.stderr.on("data", (text) => (this.log = (this.log + text).slice(-20_000)));
    running.add(this.child);
    const child = this.child;
    child.on("exit", () => running.delete(child));
    await until(`the server is ready: ${this.log}`, () => existsSync(ready) && readFileSync(ready, "utf8").includes("url"), 30_000);
    this.url = JSON.parse(readFileSync(ready, "utf8")).url;
    this.port = Number(new URL(this.url).port);
    return this;
  }

  async kill() {
    const gone = new Promise((done) => this.child.once("exit", done));
    this.child.kill("SIGKILL");
    await gone;
  }

  run(...args) {
    return execFileSync(this.program, ["--config", this.config, ...args, "--data", join(this.home, "data")], { env: this.environment, encoding: "utf8" });
  }

  async call(method, path, body) {
    const headers = { "content-type": "application/json" };
    if (this.key) headers.authorization = `Bearer ${this.key}`;
    const response = await fetch(`${this.url}/api/v1${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : null;
  }

  get = (path) => this.call("GET", path);
  post = (path, body = {}) => this.call("POST", path, body);
  say = (text, more = {}) => this.post("/messages?wait=20", { text, ...more });
}

// A model of OpenAI's protocol. "slowly" is written word by word until the test ends, "fail" is an error, all else is repeated.
export async function slowModel() {
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", async () => {
      if (request.method !== "POST") {
        response.writeHead(200, { "content-type": "application/json" });
        return response.end(JSON.stringify({ object: "list", data: [{ id: "slow", object: "model" }] }));
      }
      const asked = JSON.parse(body);
      const users = asked.messages.filter((m) => m.role === "user").map((m) => (typeof m.content === "string" ? m.content : m.content.map((p) => p.text ?? "").join("")));
      const said = (users.at(-1) ?? "").split("[/Context]").at(-1).trim();
      if (said.includes("fail")) {
        response.writeHead(400, { "content-type": "application/json" });
        return response.end(JSON.stringify({ error: { message: "this model refuses <b>this</b>", type: "invalid_request_error" } }));
      }
      response.writeHead(200, { "content-type": "text/event-stream" });
      const send = (delta, finish = null, usage) => response.write(`data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "slow", choices: [{ index: 0, delta, finish_reason: finish }], ...(usage ? { usage } : {}) })}\n\n`);
      const words = said.includes("slowly") ? Array.from({ length: 600 }, (_, n) => `word${n} `) : [`You said: ${said.slice(0, 500)}`];
      for (const word of words) {
        if (response.destroyed) return;
        send({ role: "assistant", content: word });
        if (words.length > 1) await sleep(100);
      }
      send({}, "stop", { prompt_tokens: 1200, completion_tokens: 34, total_tokens: 1234, prompt_tokens_details: { cached_tokens: 900 } });
      response.end("data: [DONE]\n\n");
    });
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { url: `http://127.0.0.1:${server.address().port}/v1`, close: () => server.closeAllConnections() };
}
