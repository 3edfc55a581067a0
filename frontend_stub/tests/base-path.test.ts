import { describe, expect, it } from "vitest";
import { BASE_PATH, basePathIn } from "../src/net/base-path";

function page(written: string): Document {
  return new DOMParser().parseFromString(`<meta name="base-path" content="${written}">`, "text/html");
}

describe("the path below which the server is found", () => {
  it("is what the server has written into the page, without its last slash", () => {
    expect(basePathIn(page("/"))).toBe("");
    expect(basePathIn(page("/drydock/"))).toBe("/drydock");
    expect(basePathIn(page("/tools/drydock/"))).toBe("/tools/drydock");
  });

  it("is empty where no server has written anything", () => {
    expect(basePathIn(page("./"))).toBe("");
    expect(basePathIn(new DOMParser().parseFromString("<p>Nothing.</p>", "text/html"))).toBe("");
    expect(BASE_PATH).toBe("");
  });
});
