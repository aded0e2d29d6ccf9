// With a server behind the page: its geometry events, and its chat. The server here speaks the same formats and plays a record.
import { readFileSync } from "node:fs";
import type { Server, ServerResponse } from "node:http";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { LOG } from "../native.ts";
import { address, launch, serve, visit } from "./harness.ts";

const lines = readFileSync(LOG, "utf8").trim().split("\n");
/** The layouts and the first four operations of both; the others come when the test says so. */
const FIRST = 9;

let server: Server;
let browser: Browser;
let listener: ServerResponse | null = null;
let asked: { model: string; messages: { content: string }[] } | null = null;

const send = (response: ServerResponse, data: string) => response.write(`data: ${data}\n\n`);

beforeAll(async () => {
  server = await serve({
    "/v1/geometry/events": (_, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      lines.slice(0, FIRST).forEach((line) => send(response, line));
      listener = response;
    },
    "/v1/models": (_, response) => response.writeHead(200, { "content-type": "application/json" }).end('{"data": [{"id": "tiny"}]}'),
    "/v1/chat/completions": (request, response) => {
      let body = "";
      request.on("data", (chunk: Buffer) => (body += chunk));
      request.on("end", () => {
        asked = JSON.parse(body);
        if (asked?.messages[0].content === "fail") {
          response.writeHead(400, { "content-type": "application/json" }).end('{"error": {"message": "messages: too long"}}');
          return;
        }
        response.writeHead(200, { "content-type": "text/event-stream" });
        for (const piece of ["Keys ", "and ", "valüs."]) send(response, JSON.stringify({ choices: [{ delta: { content: piece } }] }));
        response.end("data: [DONE]\n\n");
      });
    },
  });
  browser = await launch();
});
afterAll(async () => {
  listener?.end();
  await browser.close();
  server.closeAllConnections();
  server.close();
});

test("a running server is followed, paused, gone back in and followed again", async () => {
  const { page, close } = await visit(browser, address(server));
  await page.click("#pane-live");
  await page.click("text=Follow this server");
  await expect.poll(() => page.innerText(".count")).toBe("4 / 4");
  await page.click("text=Pause here");
  await page.click("[aria-label='Step back']");
  await expect.poll(() => page.innerText(".count")).toBe("3 / 4");
  lines.slice(FIRST).forEach((line) => send(listener!, line));
  await expect.poll(() => page.innerText(".count")).toBe("3 / 11");
  await page.click("text=Go on at the newest");
  await expect.poll(() => page.innerText(".count")).toBe("11 / 11");
  await page.click("text=Stop following");
  await close();
});

test("a prompt is answered piece by piece, and an error is said", async () => {
  const { page, close } = await visit(browser, address(server));
  await page.click("#pane-try");
  await page.fill("#prompt", "What is kept?");
  await page.click(".try >> text=Send");
  await expect.poll(() => page.innerText("[data-answer]")).toBe("Keys and valüs.");
  expect(asked).toMatchObject({ model: "tiny", messages: [{ content: "What is kept?" }] });
  await page.fill("#prompt", "fail");
  await page.click(".try >> text=Send");
  await expect.poll(() => page.innerText(".try .problem")).toBe("messages: too long");
  await close();
});

test("without a server the page says so", async () => {
  const bare = await serve();
  const { page, close } = await visit(browser, address(bare));
  await page.click("#pane-try");
  await page.waitForSelector("text=not served by an Annulus server");
  await page.click("#pane-live");
  await page.click("text=Follow this server");
  await page.waitForSelector("text=This server offers no geometry events");
  await close();
  bare.close();
});
