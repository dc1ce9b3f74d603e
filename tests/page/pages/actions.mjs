// What operators did and ordered: the record, paused classes, suspended conversations; and the past of a conversation.

import { readFileSync } from "node:fs";

export default async (t) => {
  const { page } = t;
  const dialog = page.locator("dialog[open]");
  const drawer = page.locator(".drawer");
  const confirm = async (name, reason) => {
    if (reason) await dialog.getByLabel("Reason").fill(reason);
    await dialog.getByRole("button", { name, exact: true }).click();
  };

  // An actor that is killed keeps its history: who, why, and how it ended.
  const reason = `who did it ${t.HOSTILE.slice(0, 60)}`;
  await t.open("#/actors?sel=%2Fbreakers");
  await drawer.getByText("messages,").waitFor();
  await page.getByRole("button", { name: "Kill actor" }).click();
  await confirm("Kill actor", reason);
  await t.sees("Killed /breakers");
  const row = drawer.locator("li").filter({ hasText: "who did it" });
  await row.getByText("Killed").first().waitFor();
  await row.getByText("(local)").first().waitFor();
  await t.axe("an actor with its actions");
  await t.shot("actors-actions");
  await page.getByRole("button", { name: "Close actor" }).click();
  await page.getByRole("button", { name: "Actions", exact: true }).click();
  await drawer.locator("li").filter({ hasText: "who did it" }).getByRole("link", { name: "/breakers" }).waitFor();
  await page.getByRole("button", { name: "Close actions" }).click();
  await t.open("#/actors?sel=%2Finfra");
  await page.getByRole("button", { name: "Reset budget" }).click();
  await confirm("Reset budget", "the disk is mended");
  await t.sees("The restart budget is whole again");
  await page.getByRole("button", { name: "Close actor" }).click();

  // A paused class says so on the queue and in the sentence about the whole, and its tasks wait.
  await t.open("#/queue");
  await page.getByRole("button", { name: "Pause a class" }).click();
  await dialog.getByLabel("Class").selectOption("low");
  await confirm("Pause class", "the GPU is needed");
  await page.locator(".gatebar").getByText(/Class Low is paused by .*the GPU is needed/).waitFor();
  const waiting = await t.api.post("/messages", { text: "what time is it?", priority: "low" });
  await page.locator(".tr", { hasText: "class low is paused" }).waitFor();
  await t.axe("a paused class");
  await t.shot("queue-paused");
  await page.getByRole("button", { name: "Resume Low" }).click();
  await t.until("the task is done", async () => (await t.api.get(`/tasks/${waiting.task_id}`)).status === "completed");

  // The past of a conversation: a time, a comparison, the check, a copy, an export that is imported again.
  const { conversation_id: id } = await t.api.say("remember that the key is under the mat");
  await t.open(`#/conversations/${id}`);
  await page.locator(".answer").first().waitFor();
  const more = async (name) => {
    await page.getByRole("button", { name: "More", exact: true }).click();
    await page.getByRole("menuitem", { name }).click();
  };
  await more("Check the replay");
  await drawer.getByText("The log and the core agree").waitFor();
  await page.keyboard.press("Escape");
  await more("Compare with another event");
  await dialog.getByLabel("From event").fill("0");
  await confirm("Compare");
  await dialog.getByText(/A whole number from 1 to/).waitFor();
  await dialog.getByLabel("From event").fill("1");
  await confirm("Compare");
  await drawer.getByText(/\d+ differences?/).waitFor();
  await t.shot("conversation-diff");
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Go to time" }).click();
  await dialog.getByLabel("Time").fill("quarter past");
  await confirm("Go to time");
  await dialog.getByText("This is no time.").waitFor();
  const now = await page.evaluate(() => new Date(Date.now() + 60_000).toTimeString().slice(0, 5));
  await dialog.getByLabel("Time").fill(now);
  await confirm("Go to time");
  await page.waitForFunction(() => location.hash.includes("seq="));
  await page.keyboard.press("Home");
  const [file] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Export", exact: true }).click()]);
  const path = await file.path();
  await more("Fork from here");
  await confirm("Fork conversation");
  await page.waitForFunction((hash) => location.hash.startsWith("#/conversations/conv_") && !location.hash.includes(hash), id);
  const load = async (name, text) => {
    await t.open("#/conversations");
    const [chooser] = await Promise.all([page.waitForEvent("filechooser"), page.getByRole("button", { name: "Import", exact: true }).click()]);
    await chooser.setFiles({ name, mimeType: "application/x-ndjson", buffer: Buffer.from(text) });
  };
  const exported = readFileSync(path, "utf8");
  await load("conversation.ndjson", exported);
  await t.sees("The conversation is imported");
  await page.locator(".answer").first().waitFor();
  await load("broken.ndjson", "this is no export\n");
  await page.locator(".toast.bad").first().waitFor();

  // A suspended conversation waits, and continues.
  await t.open(`#/conversations/${id}`);
  await more("Suspend conversation");
  await confirm("Suspend conversation", "not now");
  await t.sees("The conversation is suspended");
  const held = await t.api.post("/messages", { text: "what time is it?", conversation_id: id });
  await t.until("it waits", async () => (await t.api.get("/queue")).waiting.some((one) => one.task_id === held.task_id && one.why.includes("is suspended by")));
  await more("Continue conversation");
  await t.until("it is done", async () => (await t.api.get(`/tasks/${held.task_id}`)).status === "completed");

  // The audit says until when its chains hold, and what happened at a time.
  await t.open("#/audit");
  await page.getByLabel(/At a time/).fill(now);
  await page.keyboard.press("Tab");
  await page.waitForFunction(() => location.hash.includes("at="));
  await page.locator(".tr").first().waitFor();
  await page.getByRole("button", { name: "Actions", exact: true }).click();
  await drawer.locator("li").filter({ hasText: "who did it" }).first().waitFor();
  await page.getByRole("button", { name: "Close actions" }).click();
  await page.getByRole("button", { name: "Verify chain" }).click();
  await drawer.getByText(/Verified until/).first().waitFor();
  await t.axe("the verified chain");
  await t.shot("audit-verified");
  await page.keyboard.press("Escape");

  // Money and tokens.
  await t.open("#/overview");
  await t.sees("Spend today");
  await t.sees(/of \$20|no cap/);
  await t.sees("Tokens / s");
};
