// How fast the page is: frame time while scrubbing 64 rows of 4,096 columns, and first paint with the planner ready. Writes
// docs/inspector-speed.md. Run by `make bench-web`.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { DOCS, address, launch, serve, visit } from "./browser/harness.ts";

/** Frames as fast as they can be drawn: with the limit to 60 a second every frame takes 16.7 ms, however little there is to do. */
const UNLIMITED = ["--disable-frame-rate-limit", "--disable-gpu-vsync"];
const STEPS = 28;

const median = (list: number[]) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const high = (list: number[]) => [...list].sort((a, b) => a - b)[Math.floor(list.length * 0.95)];
const ms = (n: number) => `${n.toFixed(1)} ms`;

/** Moves the slider once a frame, back and forth, and returns how long each frame took. */
function scrub(page: Page, frames: number): Promise<number[]> {
  return page.evaluate(async ([frames, steps]) => {
    const slider = document.querySelector<HTMLInputElement>(".scrub")!;
    const next = () => new Promise<number>((done) => requestAnimationFrame(done));
    const times: number[] = [];
    let before = await next();
    for (let i = 0; i < frames; i++) {
      const place = i % (2 * steps - 2);
      slider.value = String(place < steps ? place : 2 * steps - 2 - place);
      slider.dispatchEvent(new Event("input", { bubbles: true }));
      const now = await next();
      times.push(now - before);
      before = now;
    }
    return times;
  }, [frames, STEPS] as const);
}

async function scrubbing(url: string): Promise<[string, number[]][]> {
  const browser = await launch(UNLIMITED);
  const { page, close } = await visit(browser, url);
  await page.click('[data-preset="large"]');
  await page.waitForFunction(() => !document.querySelector("progress"), undefined, { timeout: 120_000 });
  const results: [string, number[]][] = [];
  for (const [name, prepare] of [
    ["physical order, everything in sight", async () => {}],
    ["temporal order, everything in sight", () => page.click("text=Temporal")],
    ["physical order, zoomed in to single cells", async () => {
      await page.click("text=Physical");
      for (let i = 0; i < 14; i++) await page.click("[aria-label='Zoom in']");
    }],
  ] as [string, () => Promise<void>][]) {
    await prepare();
    await scrub(page, 20);
    results.push([name, await scrub(page, 160)]);
  }
  await close();
  await browser.close();
  return results;
}

/** From the start of the navigation: the first paint, and the moment at which the planner has answered and all is drawn. */
async function opening(url: string): Promise<{ paint: number[]; ready: number[] }> {
  const browser = await launch();
  const [paint, ready]: number[][] = [[], []];
  for (let i = 0; i < 7; i++) {
    const { page, close } = await visit(browser, url);
    await page.waitForFunction(() => performance.getEntriesByName("first-contentful-paint").length > 0);
    const [p, r] = await page.evaluate(() => [
      performance.getEntriesByName("first-contentful-paint")[0].startTime,
      performance.getEntriesByName("ready")[0].startTime,
    ]);
    paint.push(p);
    ready.push(r);
    await close();
  }
  await browser.close();
  return { paint, ready };
}

function report(frames: [string, number[]][], paint: number[], ready: number[]): string {
  return [
    "# Speed of the inspector",
    "",
    "Written by `make bench-web`: headless Chromium with software rendering, 1280 × 720, two shared CPU cores.",
    "",
    "Time of a frame while the slider is moved once a frame through 28 steps of 64 rows × 4,096 columns, without a limit of the",
    "frame rate. It is the whole frame, from the planner's data to the raster; the panels at the sides follow 60 ms after the slider rests.",
    "",
    "| | median | 95 % |",
    "|---|---|---|",
    ...frames.map(([name, times]) => `| ${name} | ${ms(median(times))} | ${ms(high(times))} |`),
    "",
    "Opening the page from a local server, median of 7, each with an empty cache:",
    "",
    `- first paint after ${ms(median(paint))}`,
    `- the planner's wasm ready and the first scenario drawn after ${ms(median(ready))}`,
    "",
  ].join("\n");
}

test("scrubbing and opening are quick", async () => {
  const server = await serve();
  const frames = await scrubbing(address(server));
  const { paint, ready } = await opening(address(server));
  server.close();
  const text = report(frames, paint, ready);
  writeFileSync(join(DOCS, "inspector-speed.md"), text);
  console.log(text);
  for (const [name, times] of frames) expect(median(times), name).toBeLessThan(16);
  expect(median(ready)).toBeLessThan(1000);
}, 300_000);
