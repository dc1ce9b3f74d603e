// What operators did and ordered: the record, paused classes, suspended conversations, and until when the chains hold.

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

  const { conversation_id: id } = await t.api.say("remember that the key is under the mat");
  const now = await page.evaluate(() => new Date().toTimeString().slice(0, 5));
  const more = async (name) => {
    await page.getByRole("button", { name: "More", exact: true }).click();
    await page.getByRole("menuitem", { name }).click();
  };

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
