import { describe, expect, it } from "vitest";
import { Api } from "../src/net/api";
import { ApiError } from "../src/net/http";
import type { Request } from "../src/net/http";

describe("what is made anew", () => {
  const keys: (string | undefined)[] = [];
  const answers: (ApiError | Record<string, unknown>)[] = [];
  const request: Request = (_method, _path, _body, _token, key) => {
    keys.push(key);
    const answer = answers.shift() ?? { conversation_id: "c1" };
    return answer instanceof ApiError ? Promise.reject(answer) : Promise.resolve(answer);
  };
  const api = new Api(request);
  const made = async (failure: ApiError | null, work: () => Promise<unknown>): Promise<string | undefined> => {
    if (failure === null) await work();
    else {
      answers.push(failure);
      await expect(work()).rejects.toBe(failure);
    }
    return keys.at(-1);
  };

  it("bears the same key until its answer is known, and then another one", async () => {
    const create = () => api.createConversation("Mend it.");
    const lost = await made(new ApiError(0, "no answer"), create);
    expect(lost).toMatch(/^[0-9a-f]{32}$/);
    expect(await made(new ApiError(503, "later"), create)).toBe(lost);
    expect(await made(null, create)).toBe(lost);
    const next = await made(null, create);
    expect(next).not.toBe(lost);
    const refused = await made(new ApiError(400, "no"), create);
    expect(await made(null, create)).not.toBe(refused);
  });

  it("bears another key where it is something else", async () => {
    const first = await made(new ApiError(0, "no answer"), () => api.fork("c1", 3));
    expect(await made(new ApiError(0, "no answer"), () => api.fork("c1", 3))).toBe(first);
    expect(await made(null, () => api.fork("c1", 4))).not.toBe(first);
    expect(await made(null, () => api.importRecording([]))).toBeDefined();
  });
});
