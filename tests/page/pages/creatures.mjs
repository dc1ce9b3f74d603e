// The creatures are moved by the events of a real turn, in the order of its way, and by nothing else.

const states = (page) => page.evaluate(() => {
  window.seen = [];
  const note = (records) => records.forEach(({ target }) => target.dataset.state !== "idle" && window.seen.push(`${target.dataset.id} ${target.dataset.state}`));
  new MutationObserver(note).observe(document.querySelector(".stage"), { attributes: true, attributeFilter: ["data-state"], subtree: true });
});

export default async (t) => {
  await t.page.emulateMedia({ reducedMotion: "no-preference" });
  await t.open("#/creatures");
  await t.page.waitForFunction(() => document.querySelector(".livebtn")?.dataset.phase === "live");
  // Backends and skills are known when the first backend has its creature.
  await t.page.waitForFunction(() => !document.querySelector('.creature[data-id="unicorn"]').classList.contains("absent"));
  const count = await t.page.locator(".stage .creature").count();
  if (count !== 48) throw new Error(`${count} creatures`);
  await states(t.page);
  await t.api.say("Create a task to water the ferns tomorrow", { conversation_key: `creatures ${Date.now()}` });
  await t.page.waitForFunction(() => window.seen.includes("nymph completing"));
  await t.shot("creatures-turn");
  const seen = await t.page.evaluate(() => window.seen);
  const way = ["cerberus activating", "golem activating", "clockwork activating", "sphinx activating", "unicorn completing", "seahorse completing", "nymph completing"];
  const places = way.map((step) => seen.indexOf(step));
  if (places.some((at, n) => at < 0 || (n > 0 && at < places[n - 1]))) throw new Error(`${way.join(", ")} in ${seen.join(", ")}`);
  const moved = seen.filter((step) => /^(siren|gargoyle|narwhal|leviathan|serpent|centaur|djinn) /.test(step));
  if (moved.length) throw new Error(`parts that do not exist moved: ${moved}`);
  await t.page.locator('.creature[data-id="seahorse"] .caption', { hasText: "tasks.create" }).waitFor();
  // Afterwards nothing is animated.
  await t.page.waitForFunction(() => ![...document.querySelectorAll(".stage .creature")].some((one) => one.dataset.state !== "idle") && document.querySelector(".stage").getAnimations({ subtree: true }).length === 0);
  await t.page.locator('.creature[data-id="golem"]').focus();
  await t.page.locator(".about").getByText("/scheduler").waitFor();
  await t.page.getByRole("tab", { name: "Table" }).click();
  await t.page.getByRole("row", { name: /siren.*Not installed/i }).waitFor();
  const rows = await t.page.locator(".table-scroll:not([hidden]) table").first().locator("tbody tr").count();
  if (rows !== 48) throw new Error(`${rows} rows`);
};
