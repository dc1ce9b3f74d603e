// Orders of operators: a paused class and a suspended conversation wait, say so, and go on.

export default async (t) => {
  const { page } = t;
  const dialog = page.locator("dialog[open]");
  const confirm = async (name, reason) => {
    await dialog.getByLabel("Reason").fill(reason);
    await dialog.getByRole("button", { name, exact: true }).click();
  };

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
};
