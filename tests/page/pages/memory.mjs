// Memories, to-dos and notes are added, changed, forgotten and brought back.

export default async (t) => {
  const text = `Bob keeps ${t.HOSTILE} in the shed`;
  await t.open("#/memory");
  await t.page.getByRole("button", { name: "Add memory" }).first().click();
  const dialog = t.page.locator("dialog[open]");
  await dialog.getByLabel("Statement").fill(text);
  await dialog.getByRole("button", { name: "Add memory" }).click();
  await t.sees("Memory added");
  const row = t.page.locator(".place:not([hidden]) .tr", { hasText: "in the shed" });
  await row.click();
  await t.page.locator(".place:not([hidden]) .list-detail").getByText("your own words").waitFor();
  await t.axe("a memory");
  await t.page.getByRole("button", { name: "Edit memory" }).click();
  await t.page.locator("dialog[open]").getByLabel("Statement").fill("Bob keeps a boat in the shed");
  await t.page.locator("dialog[open]").getByRole("button", { name: "Save memory" }).click();
  await t.page.locator(".list-detail").getByText("Bob keeps a boat in the shed").waitFor();
  await t.page.getByRole("button", { name: "Forget memory" }).first().click();
  await t.page.locator("dialog[open]").getByRole("button", { name: "Forget 1 memory" }).click();
  await t.sees("Forgot 1 memory");
  await t.page.getByLabel("Trash").check();
  await t.page.locator(".place:not([hidden]) .tr", { hasText: "Bob keeps a boat" }).click();
  await t.page.getByRole("button", { name: "Restore memory" }).click();
  await t.sees("Memory restored");
  await t.page.getByLabel("Trash").uncheck();
  await t.page.locator(".place:not([hidden]) .tr", { hasText: "Bob keeps a boat" }).waitFor();

  await t.page.getByRole("tab", { name: "To-dos" }).click();
  await t.page.getByRole("button", { name: "Add to-do" }).first().click();
  await t.page.locator("dialog[open]").getByLabel("Title").fill("Oil the boat");
  await t.page.locator("dialog[open]").getByRole("button", { name: "Add to-do" }).click();
  await t.page.locator(".place:not([hidden]) .tr", { hasText: "Oil the boat" }).click();
  await t.page.getByRole("button", { name: "Finish to-do" }).first().click();
  await t.sees("To-do done");

  await t.page.getByRole("tab", { name: "Notes" }).click();
  await t.page.getByRole("button", { name: "Add note" }).first().click();
  await t.page.locator("dialog[open]").getByLabel("Title").fill("boat");
  await t.page.locator("dialog[open]").getByLabel("Text").fill("It is green.");
  await t.page.locator("dialog[open]").getByRole("button", { name: "Add note" }).click();
  await t.page.locator(".place:not([hidden]) .tr", { hasText: "boat" }).click();
  await t.page.locator(".place:not([hidden]) .list-detail").getByText("It is green.").waitFor();
  await t.shot("memory-note");
};
