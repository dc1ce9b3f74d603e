// Jobs, backends, audit and settings.

export default async (t) => {
  const { task_id: task } = await t.api.say(`Create a task to air the house ${t.HOSTILE}`, { conversation_key: "house" });
  await t.open("#/jobs?view=ended");
  await t.page.locator(".tr", { hasText: "air the house" }).first().click();
  await t.page.locator(".list-detail").getByText("This job has ended.").waitFor();
  await t.axe("a job");
  const later = await t.api.post("/messages", { text: "Say hello later", priority: "low", delay_ms: 600000 });
  await t.open("#/jobs");
  await t.page.locator(".tr", { hasText: "Say hello later" }).click();
  await t.page.getByRole("button", { name: "Cancel job" }).click();
  await t.page.locator("dialog[open]").getByRole("button", { name: "Cancel job" }).click();
  await t.until("it is cancelled", async () => (await t.api.get(`/tasks/${later.task_id}`)).status === "cancelled");

  await t.open("#/backends");
  await t.page.getByRole("button", { name: "Close voice gate" }).click();
  await t.page.locator("dialog[open]").getByRole("button", { name: "Close voice gate" }).click();
  await t.sees("closed by page");
  await t.page.getByRole("button", { name: "Open voice gate" }).click();
  await t.page.getByRole("button", { name: "Close voice gate" }).waitFor();

  await t.open("#/audit?kind=skill_finished&text=air%20the%20house");
  await t.page.locator(".tr", { hasText: "tasks.create: success" }).first().click();
  await t.page.locator(".list-detail").getByText("The whole event").waitFor();
  await t.axe("an event");
  await t.shot("audit-selected");
  if (!(await t.page.locator(".list-detail").innerText()).includes(task.slice(-6))) throw new Error("the event of another task");

  await t.open("#/settings?filter=origin%3Aset");
  await t.page.locator(".tr", { hasText: "approval.rules" }).first().click();
  await t.page.locator(".list-detail").getByText(/annie\.toml/).first().waitFor();
  await t.page.getByRole("tab", { name: "Appearance" }).click();
  await t.page.getByRole("radio", { name: "Dark" }).check();
  if ((await t.page.evaluate(() => document.documentElement.dataset.theme)) !== "dark") throw new Error("the theme did not change");
  await t.page.getByRole("radio", { name: "As the system" }).check();
  await t.page.getByRole("tab", { name: "Keys" }).click();
  await t.sees("No keys");
};
