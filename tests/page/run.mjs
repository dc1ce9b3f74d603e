// Drives the page in a browser against real servers with real work and real kills.
//
//   node tests/page/run.mjs PROGRAM [--modules FOLDER] [--shots FOLDER] [--only NAME] [--web FOLDER]
//
// With --web the files of the page are read from that folder, so that a change needs no new program.
//
// Prints one line a test, and ends with 1 if one failed. Every test is limited in time.

import { readdirSync, readFileSync, mkdirSync, existsSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Annie, cleanUp, slowModel, until } from "./world.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const [program, ...rest] = process.argv.slice(2);
const option = (name) => (rest.includes(name) ? rest[rest.indexOf(name) + 1] : undefined);
const modules = option("--modules") ?? here;
const shots = option("--shots");
const only = option("--only");
const web = option("--web");
const browserPath = process.env.ANNIE_TEST_BROWSER ?? "/usr/bin/chromium";
const require = createRequire(join(resolve(modules), "package.json"));
const { chromium } = require("playwright-core");
const { AxeBuilder } = require("@axe-core/playwright");
const FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const TEST_MS_MAX = 60_000;
const HOSTILE = `<img src=x onerror="document.title='broken'"><script>document.title='broken'</script> "quoted" & 'more'`;

const PAGES = [...readFileSync(join(here, "../../web/pages/registry.js"), "utf8").matchAll(/\{ id: "([a-z-]+)"/g)].map((found) => found[1]);

if (shots) mkdirSync(shots, { recursive: true });
const browser = await chromium.launch({ executablePath: browserPath, args: FLAGS });
const model = await slowModel();

// What a test gets: a page of its own at a server, and short ways to say what it does.
async function tools(annie, { theme = "light", width = 1280, key } = {}) {
  const context = await browser.newContext({ viewport: { width, height: width < 720 ? 844 : 860 }, colorScheme: theme, reducedMotion: "reduce" });
  if (web) await readFrom(context, web);
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  const errors = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (message) => {
    // A refused request is also written to the console; tests of refusals expect it.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) errors.push(message.text());
  });
  page.on("dialog", (dialog) => {
    errors.push(`a text ran as code: ${dialog.message()}`);
    dialog.dismiss();
  });
  if (key) await context.addInitScript((value) => sessionStorage.setItem("annie.key", value), key);
  const t = {
    annie, page, context, base: annie.url, until, HOSTILE,
    api: annie,
    async open(hash) {
      const to = `${annie.url}/${hash}`;
      if (page.url().startsWith(annie.url)) await page.evaluate((h) => (location.hash = h), hash);
      else await page.goto(to);
      await page.waitForSelector("main h1");
    },
    // Waits until the page shows the text.
    sees: (text, options) => page.getByText(text, options).first().waitFor(),
    async axe(name = page.url(), rules) {
      const builder = new AxeBuilder({ page });
      const { violations } = await (rules ? builder.withRules(rules) : builder).analyze();
      const found = violations.map((v) => `${v.id}: ${v.nodes.slice(0, 3).map((n) => n.html.slice(0, 160)).join(" | ")}`);
      if (found.length) throw new Error(`axe at ${name}: ${found.join("; ")}`);
    },
    shot: (name) => (shots ? page.screenshot({ path: join(shots, `${name}.png`) }) : null),
    async done() {
      await context.close();
      if (errors.length) throw new Error(`errors on the page: ${errors.slice(0, 3).join("; ")}`);
    },
  };
  return t;
}

async function readFrom(context, folder) {
  await context.route((url) => url.pathname === "/", async (route) => {
    const response = await route.fetch();
    const body = readFileSync(join(folder, "index.html"), "utf8").replaceAll("{{base}}", "/page/dev");
    await route.fulfill({ response, body });
  });
  await context.route("**/page/**", (route) => route.fulfill({ path: join(folder, new URL(route.request().url()).pathname.replace(/^\/page\/[^/]+\//, "")) }));
}

const tests = [];
const test = (name, run) => tests.push({ name, run });
export const equal = (found, wanted, what) => {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(`${what}: ${JSON.stringify(found)} instead of ${JSON.stringify(wanted)}`);
};

const offline = new Annie(program, "offline", `[approval]\nrules = [{ mode = "always", when = { skills = ["notes.create"] } }]\n`);
const keyed = new Annie(program, "keyed", `[[backend]]\nname = "slow"\nbase_url = "${model.url}"\nmodel = "slow"\nslots = 1\nmode = "single_loop"\n`);

test("page_without_keys_opens_at_once_and_shows_the_state_of_the_whole", async () => {
  const t = await tools(offline);
  await t.open("#/overview");
  await t.sees(/All good/);
  await t.sees("All closed");
  await t.page.waitForFunction(() => document.querySelector(".livebtn")?.dataset.phase === "live");
  await t.done();
});

test("chat_streams_an_answer_with_its_agents_and_the_story_shows_their_plan", async () => {
  const t = await tools(offline);
  await t.open("#/chat");
  await t.page.getByLabel("Message", { exact: true }).fill("Create a task to review PR 42 due tomorrow, remember that Bob prefers email, and then tell me what is due");
  await t.page.keyboard.press("Enter");
  await t.sees(/I created task/);
  const chip = t.page.locator(".workchips button").first();
  await chip.click();
  await t.page.locator(".drawer").getByText("Mission").waitFor();
  await t.shot("chat-agent");
  await t.page.keyboard.press("Escape");
  await t.page.getByRole("link", { name: "Where the time went" }).click();
  await t.sees(/Slowest:/);
  equal(await t.page.locator(".dagnode").count() >= 2, true, "the plan has its agents");
  await t.page.keyboard.press("3");
  await t.sees("turn_started");
  await t.page.getByLabel("Place in the log").focus();
  await t.page.keyboard.press("Home");
  await t.page.keyboard.press("ArrowRight");
  await t.sees("State at event 2");
  equal(/seq=2/.test(t.page.url()), true, "the place is in the address");
  await t.shot("conversation-past");
  await t.done();
});

test("actor_that_is_killed_is_seen_to_fall_with_its_cause_and_to_come_back", async () => {
  const t = await tools(offline);
  await t.open("#/actors?sel=%2Fscheduler");
  await t.page.locator(".drawer").getByText("messages,").waitFor();
  await t.page.getByRole("button", { name: "Kill actor" }).click();
  const dialog = t.page.locator("dialog[open]");
  await dialog.getByRole("button", { name: "Kill actor" }).click();
  await dialog.getByText("Reason is missing.").waitFor();
  await dialog.getByLabel("Reason").fill(`to see it fall ${HOSTILE}`);
  await dialog.getByRole("button", { name: "Kill actor" }).click();
  await t.sees("Killed /scheduler");
  const fallen = t.page.locator(".tr.gone");
  await fallen.getByText(/killed by .*to see it fall/).waitFor();
  equal(await fallen.locator(".struck").count(), 1, "it is struck through");
  equal(await t.page.locator(".tr:not(.gone) .treecell", { hasText: "scheduler" }).count() >= 1, true, "its next incarnation runs");
  await t.shot("actors-fallen");
  await t.page.getByRole("button", { name: "Close actor" }).click();
  await t.page.getByRole("button", { name: "Crashes" }).click();
  await t.page.locator(".drawer").getByText(/to see it fall/).waitFor();
  equal((await offline.say("still there?")).status ?? "completed", "completed", "it still answers");
  await t.done();
});

test("call_that_needs_an_approval_is_approved_in_the_chat", async () => {
  const t = await tools(offline);
  await t.open("#/chat");
  await t.page.getByLabel("Message", { exact: true }).fill("Create a note called plans with \"The boat trip is in June\"");
  await t.page.keyboard.press("Enter");
  const card = t.page.getByRole("group", { name: /Approval of notes.create/ });
  await card.waitFor();
  await t.shot("chat-approval");
  await card.getByRole("button", { name: "Approve", exact: true }).click();
  await t.sees(/Approved notes.create/);
  await t.page.locator(".final .answer").first().waitFor();
  await t.done();
});

test("hostile_text_is_shown_as_text_in_every_place", async () => {
  const { conversation_id: id } = await offline.say(HOSTILE);
  const t = await tools(offline);
  for (const hash of ["#/overview", "#/conversations", `#/conversations/${id}`, `#/conversations/${id}?view=waterfall`, `#/conversations/${id}?view=events`, `#/chat/${id}`, "#/queue", `#/conversations?filter=${encodeURIComponent(HOSTILE)}`, `#/${encodeURIComponent(HOSTILE)}`]) {
    await t.open(hash);
    if (!hash.startsWith("#/queue") && !hash.includes("filter=")) await t.page.locator("main").getByText("<img src=x").first().waitFor();
    equal(await t.page.evaluate(() => document.querySelectorAll("main img, main script").length), 0, `elements at ${hash}`);
    equal(await t.page.title() === "broken", false, `code ran at ${hash}`);
  }
  await t.done();
});

test("deleted_conversation_is_restored_from_the_list", async () => {
  const { conversation_id: id } = await offline.say("delete me and bring me back");
  const t = await tools(offline);
  await t.open(`#/conversations/${id}`);
  await t.page.getByRole("button", { name: "Delete", exact: true }).click();
  await t.page.locator("dialog[open]").getByRole("button", { name: "Delete conversation" }).click();
  await t.page.getByRole("button", { name: "Deleted", exact: true }).click();
  const row = t.page.locator(".drawer li").filter({ hasText: "delete me and bring me back" });
  await t.shot("conversations-deleted");
  await row.getByRole("button", { name: "Restore" }).click();
  // The page goes there once the conversation is restored.
  await t.page.waitForFunction((hash) => location.hash === hash, `#/conversations/${id}`);
  await t.page.locator(".answer").first().waitFor();
  await t.done();
});

test("palette_and_keyboard_reach_pages_and_conversations", async () => {
  const t = await tools(offline);
  await t.open("#/overview");
  await t.page.keyboard.press("g");
  await t.page.keyboard.press("q");
  await t.page.getByRole("heading", { name: "Queue" }).waitFor();
  await t.page.keyboard.press("Control+k");
  await t.page.getByRole("combobox", { name: "Search and commands" }).fill("review PR 42");
  await t.page.getByRole("option", { name: /Create a task to review PR 42/ }).click();
  await t.page.getByRole("heading", { name: /review PR 42/ }).waitFor();
  await t.page.keyboard.press("?");
  await t.page.locator("dialog[open]").getByText("Search and commands").waitFor();
  await t.done();
});

test("key_is_asked_for_kept_and_refused", async () => {
  keyed.key = JSON.parse(keyed.run("--json", "key", "create", "page", "--scope", "admin")).secret;
  await keyed.start();
  const t = await tools(keyed);
  await t.page.goto(`${keyed.url}/#/queue`);
  await t.page.getByLabel("Key").fill("annie_wrong");
  await t.page.keyboard.press("Enter");
  await t.page.getByRole("alert").getByText(/./).waitFor();
  await t.axe("sign-in");
  await t.shot("sign-in");
  await t.page.getByLabel("Key").fill(keyed.key);
  await t.page.keyboard.press("Enter");
  await t.page.getByRole("heading", { name: "Queue" }).waitFor();
  await t.page.waitForFunction(() => document.querySelector(".livebtn")?.dataset.phase === "live");
  await t.done();
});

test("key_is_for_chat_only_and_sees_its_pages_and_no_empty_ones", async () => {
  const key = JSON.parse(keyed.run("--json", "--url", keyed.url, "--key-file", keyed.keyFile(), "key", "create", "chat", "--scope", "chat")).secret;
  const t = await tools(keyed, { key });
  await t.page.goto(`${keyed.url}/#/actors`);
  await t.sees("Your key does not show this page");
  await t.sees(/It has not the scope ops:read/);
  equal(await t.page.getByRole("button", { name: "Try again" }).count(), 0, "trying again cannot help");
  const pages = await t.page.locator(".rail a.item").evaluateAll((links) => links.map((link) => link.dataset.page).filter(Boolean));
  equal(pages, ["chat", "conversations", "skills", "memory", "audit", "settings"], "the pages of the rail");
  await t.page.goto(`${keyed.url}/`);
  await t.page.getByRole("heading", { name: "Chat", exact: true }).waitFor();
  await t.done();
});

test("table_on_a_phone_scrolls_above_its_footer_and_shows_the_tree_and_what_waits", async () => {
  const t = await tools(offline, { width: 390 });
  await offline.post("/messages", { text: "Create a note called Phone with \"x\"", conversation_key: "phone" });
  await t.until("a call waits", async () => (await offline.get("/approvals")).approvals.length > 0);
  await t.open("#/actors");
  await t.page.locator(".tr").nth(3).waitFor();
  const seen = await t.page.evaluate(() => {
    const box = (selector) => document.querySelector(selector).getBoundingClientRect();
    const indents = [...document.querySelectorAll(".treecell")].slice(0, 3).map((cell) => parseInt(getComputedStyle(cell).paddingLeft, 10));
    return { isAbove: box(".vtable .scroll").bottom <= box(".vtable .foot").top + 1, indents };
  });
  equal(seen.isAbove, true, "no row is drawn over the footer");
  equal(seen.indents[0] < seen.indents[1] && seen.indents[1] < seen.indents[2], true, `the tree is indented: ${seen.indents}`);
  await t.sees(/1 call waits for you/);
  await t.page.locator(".rail .more .badge").getByText("1").waitFor();
  await t.shot("actors-phone");
  const [call] = (await offline.get("/approvals")).approvals;
  await offline.post(`/approvals/${call.task_id}/deny`, { number: call.number, reason: "a test" });
  await t.done();
});

test("drafts_arrive_as_they_are_written_the_queue_says_why_and_stop_ends_it", async () => {
  const t = await tools(keyed, { key: keyed.key });
  await t.open("#/chat");
  await t.page.getByLabel("Message", { exact: true }).fill("write slowly");
  await t.page.keyboard.press("Enter");
  await t.page.locator(".is-draft").getByText(/word3/).waitFor();
  const queue = await tools(keyed, { key: keyed.key });
  const later = await keyed.post("/messages", { text: "later", priority: "low" });
  await queue.open("#/queue");
  const row = queue.page.locator(".tr", { hasText: "later" });
  await row.waitFor();
  await row.click();
  await queue.page.locator(".drawer").getByText("Why not yet").waitFor();
  await queue.shot("queue-why");
  await queue.page.getByRole("button", { name: "Change class" }).first().click();
  await queue.page.locator("dialog[open]").getByText(/would be rank/).first().waitFor({ state: "attached" });
  await queue.page.locator("dialog[open]").getByRole("button", { name: "Cancel" }).click();
  await queue.done();
  await t.shot("chat-draft");
  await t.page.getByRole("button", { name: "Stop", exact: true }).click();
  await t.sees("Cancelled");
  await until("the waiting task runs", async () => (await keyed.get(`/tasks/${later.task_id}`)).status === "completed");
  await t.done();
});

const PAIR = `---
name: pair
description: Two agents that write without end.
steps:
  - id: both
    parallel:
      - {id: one, agent: "write slowly, the first"}
      - {id: two, agent: "write slowly, the second"}
    next: {on: failed, to: say}
  - id: say
    answer: "One {steps.one.status}, two {steps.two.status}."
---
`;

test("agents_are_steered_and_stopped_where_their_mission_is_shown", async () => {
  mkdirSync(join(keyed.home, "data", "workflows"), { recursive: true });
  writeFileSync(join(keyed.home, "data", "workflows", "pair.md"), PAIR);
  await until("the workflow is known", async () => (await keyed.get("/workflows")).workflows.some((one) => one.name === "pair"));
  const run = await keyed.post("/workflows/pair/run", {});
  await until("both agents work", async () => (await keyed.get(`/agents?conversation_id=${run.conversation_id}`)).agents.filter((one) => one.status === "running").length === 2);
  const t = await tools(keyed, { key: keyed.key });
  await t.open(`#/conversations/${run.conversation_id}`);
  const open = (id) => t.page.getByRole("button", { name: new RegExp(`^Agent ${id}, `) }).first().click();
  const names = (await keyed.get(`/agents?conversation_id=${run.conversation_id}`)).agents.map((one) => one.agent);
  await open(names[0]);
  await t.page.locator(".drawer").getByRole("button", { name: "Add to mission" }).click();
  const dialog = t.page.locator("dialog[open]");
  await dialog.getByLabel(/What it is to know/).fill(`only this week ${HOSTILE}`);
  await dialog.getByRole("button", { name: "Add to mission" }).click();
  await until("the text is stored", async () => (await keyed.get(`/agents?conversation_id=${run.conversation_id}`)).agents[0].steered === 1);
  for (const name of names) {
    await open(name);
    if (name === names[0]) await t.page.locator(".drawer").getByText(/added: only this week/).waitFor();
    await t.axe("an agent with its actions");
    await t.page.locator(".drawer").getByRole("button", { name: "Stop agent" }).click();
    await dialog.getByLabel(/Reason/).fill("not needed");
    await dialog.getByRole("button", { name: "Stop agent" }).click();
    await until(`${name} has ended`, async () => !(await keyed.get(`/agents?conversation_id=${run.conversation_id}`)).agents.some((one) => one.agent === name));
  }
  await t.sees("One failed, two failed.");
  await open(names[1]);
  await t.page.locator(".drawer").getByText(/Cancelled by/).first().waitFor();
  equal(await t.page.locator(".drawer").getByRole("button", { name: "Stop agent" }).count(), 0, "buttons of an agent that has ended");
  await t.done();
});

test("failure_says_what_went_wrong_as_text", async () => {
  const t = await tools(keyed, { key: keyed.key });
  const failed = await keyed.post("/messages?wait=20", { text: "fail please" });
  await t.open(`#/conversations/${failed.conversation_id}`);
  await t.page.locator(".answer.is-failed").waitFor();
  await t.page.getByRole("button", { name: "Next failure" }).click();
  await t.sees(/State at event|State now/);
  await t.done();
});

test("lost_server_is_noticed_and_the_stream_resumes_by_itself", async () => {
  const t = await tools(keyed, { key: keyed.key });
  const { conversation_id: id } = await keyed.say("before the fall");
  await t.open(`#/chat/${id}`);
  await t.sees("You said: before the fall");
  await keyed.kill();
  await t.page.locator(".notice").getByText(/Reconnecting/).waitFor();
  await t.shot("reconnecting");
  await keyed.start();
  await keyed.say("after the fall", { conversation_id: id });
  await t.sees("You said: after the fall");
  await t.page.waitForFunction(() => document.querySelector(".livebtn")?.dataset.phase === "live");
  await t.page.waitForFunction(() => document.querySelectorAll(".thread article").length >= 2);
  equal(await t.page.locator(".thread article").count(), 2, "nothing is shown twice");
  await t.done();
});

test("paused_page_opens_no_stream_and_continues_where_it_was", async () => {
  const t = await tools(offline);
  await t.open("#/overview");
  await t.page.waitForFunction(() => document.querySelector(".livebtn")?.dataset.phase === "live");
  await t.page.locator(".livebtn").click();
  await t.page.waitForFunction(() => document.querySelector(".livebtn")?.dataset.phase === "paused");
  await until("the server has no stream of this page", async () => /annie_sse_clients 0/.test(await (await fetch(`${offline.url}/metrics`)).text()));
  await t.page.locator(".livebtn").click();
  await t.page.waitForFunction(() => document.querySelector(".livebtn")?.dataset.phase === "live");
  await t.done();
});

for (const file of existsSync(join(here, "pages")) ? readdirSync(join(here, "pages")).filter((name) => name.endsWith(".mjs")).sort() : []) {
  const name = file.replace(/\.mjs$/, "");
  test(`page_${name.replaceAll("-", "_")}_works`, async () => {
    const module = await import(pathToFileURL(join(here, "pages", file)));
    const t = await tools(offline);
    await module.default(t);
    await t.done();
  });
}

// One conversation and one actor stand for their details.
test("axe_finds_nothing_in_both_themes_at_both_widths", async () => {
  const { conversation_id: id } = await offline.say("Create a task to pay the rent, remember that Bob prefers email, and then tell me what is due");
  const places = [...PAGES.map((page) => [page, `#/${page}`]), ["story", `#/conversations/${id}`], ["waterfall", `#/conversations/${id}?view=waterfall`], ["events", `#/conversations/${id}?view=events`], ["thread", `#/chat/${id}`], ["actor", "#/actors?sel=%2Fscheduler"], ["nowhere", "#/nowhere"]];
  const problems = [];
  const round = async (width) => {
    const t = await tools(offline, { width });
    for (const [name, hash] of places) {
      await t.open(hash);
      await t.page.locator("main .skeleton").first().waitFor({ state: "detached" }).catch(() => {});
      await t.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 120))));
      await t.axe(`${name}, light, ${width} px`).catch((error) => problems.push(error.message));
      const wide = await t.page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 0) problems.push(`${name} is ${wide} px wider than ${width} px`);
      await t.shot(`${name}-light-${width}`);
      // The themes differ in their colours only, so that the other rules need no second run.
      await t.page.emulateMedia({ colorScheme: "dark", reducedMotion: "reduce" });
      await t.axe(`${name}, dark, ${width} px`, ["color-contrast"]).catch((error) => problems.push(error.message));
      await t.shot(`${name}-dark-${width}`);
      await t.page.emulateMedia({ colorScheme: "light", reducedMotion: "reduce" });
    }
    await t.done().catch((error) => problems.push(error.message));
  };
  await Promise.all([1280, 390].map(round));
  if (problems.length) throw new Error(problems.join("\n   "));
});

let failed = 0;
let ran = 0;
const begun = Date.now();
try {
  await offline.start();
  for (const { name, run } of tests) {
    if (only && !name.includes(only) && !(only !== "key" && name.startsWith("key_is"))) continue;
    ran += 1;
    const from = Date.now();
    let timer;
    const limit = name.startsWith("axe") ? 6 * TEST_MS_MAX : TEST_MS_MAX;
    const late = new Promise((_, fail) => (timer = setTimeout(() => fail(new Error(`not done within ${limit / 1000} s`)), limit)));
    try {
      await Promise.race([run(), late]);
      console.log(`ok     ${name} (${((Date.now() - from) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}\n   ${error.message}`);
      for (const context of browser.contexts()) {
        for (const page of context.pages()) await page.screenshot({ path: join(shots ?? tmpdir(), `failed-${name}.png`) }).catch(() => {});
        await context.close().catch(() => {});
      }
    }
    clearTimeout(timer);
  }
} catch (error) {
  failed += 1;
  console.log(`FAILED to start: ${error.message}\n${offline.log ?? ""}`);
} finally {
  await browser.close();
  model.close();
  cleanUp();
}
console.log(`${ran - failed} of ${ran} page tests passed in ${((Date.now() - begun) / 1000).toFixed(0)} s`);
process.exit(failed ? 1 : 0);
