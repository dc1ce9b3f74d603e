// What operators did: the record at an actor, and on the page of actors.

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
  await drawer.locator("li").filter({ hasText: "who did it" }).first().getByRole("link", { name: "/breakers" }).waitFor();
  await page.getByRole("button", { name: "Close actions" }).click();
  await t.open("#/actors?sel=%2Finfra");
  await page.getByRole("button", { name: "Reset budget" }).click();
  await confirm("Reset budget", "the disk is mended");
  await t.sees("The restart budget is whole again");
  await page.getByRole("button", { name: "Close actor" }).click();
};
