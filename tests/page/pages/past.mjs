// The past of a conversation: a time, a comparison, the replay check, a copy, and an export that is imported again.

import { readFileSync } from "node:fs";

export default async (t) => {
  const { page } = t;
  const dialog = page.locator("dialog[open]");
  const drawer = page.locator(".drawer");
  const confirm = (name) => dialog.getByRole("button", { name, exact: true }).click();

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
};
