// A skill is found, read, and tried with a form made of its schema.

export default async (t) => {
  await t.api.say("Create a task to sharpen the pencils");
  await t.open("#/skills");
  await t.page.getByRole("combobox", { name: "Filter skills" }).fill("domain:tasks search");
  await t.page.waitForFunction(() => document.querySelectorAll(".place:not([hidden]) .tr").length <= 3);
  await t.page.getByRole("heading", { name: "Skills", exact: true }).click();
  await t.page.locator(".tr", { hasText: "tasks.search" }).click();
  const detail = t.page.locator(".place:not([hidden]) .list-detail");
  await detail.getByText("It runs on your own data and changes nothing.").waitFor();
  await detail.getByLabel(/^query/).fill("pencils");
  await detail.getByRole("button", { name: "Run tasks.search" }).click();
  await detail.getByText(/sharpen the pencils/i).first().waitFor();
  await t.axe("a skill");
  await t.shot("skills-tried");
  await detail.getByLabel(/^limit/).fill("1000");
  await detail.getByRole("button", { name: "Run tasks.search" }).click();
  await detail.getByText(/--limit/).first().waitFor();
  await t.open("#/skills?sel=weekly-review");
  await detail.getByText("A prompt skill runs in a conversation").waitFor();
  await t.page.getByRole("tab", { name: "MCP servers" }).click();
  await t.sees("annie mcp import FILE");
};
