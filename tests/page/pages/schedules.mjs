// A schedule is made from words, runs on demand, pauses and goes.

export default async (t) => {
  await t.open("#/schedules");
  await t.page.getByRole("button", { name: "New schedule" }).first().click();
  const dialog = t.page.locator("dialog[open]");
  await dialog.getByLabel("Message").fill("What is due?");
  await dialog.getByLabel("When").fill("every blue moon");
  await dialog.getByRole("button", { name: "Create schedule" }).click();
  await t.sees(/`blue` is not understood/);
  await t.page.getByRole("button", { name: "New schedule" }).first().click();
  await dialog.getByLabel("Message").fill("What is due?");
  await dialog.getByLabel("When").fill("every weekday at 8");
  await dialog.getByRole("button", { name: "Create schedule" }).click();
  await t.page.locator(".list-detail .times li").nth(9).waitFor();
  await t.axe("a schedule");
  await t.shot("schedules-selected");
  await t.page.getByRole("button", { name: "Run schedule now" }).click();
  await t.sees("The message is sent");
  await t.page.getByRole("button", { name: "Pause schedule" }).click();
  await t.page.locator(".tr .chip").getByText("Paused").waitFor();
  await t.page.locator(".list-detail").getByRole("button", { name: "Remove schedule" }).click();
  await t.page.locator("dialog[open]").getByRole("button", { name: /Remove schedule/ }).click();
  await t.sees("No schedules");
};
