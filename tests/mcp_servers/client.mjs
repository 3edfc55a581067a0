// A client of MCP servers, with the protocol's JavaScript library. Its one argument is a JSON object: `program`
// ({command, args, env}) or `url` with `headers`, and `calls`, a list of [tool, arguments]. It prints what it found.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const order = JSON.parse(process.argv[2]);
const client = new Client({ name: "a-client", version: "1.0.0" });
const transport = order.program
  ? new StdioClientTransport(order.program)
  : new StreamableHTTPClientTransport(new URL(order.url), { requestInit: { headers: order.headers } });
await client.connect(transport);
const found = { server: client.getServerVersion(), results: [], progress: [], resources: [] };
found.tools = (await client.listTools()).tools.map((tool) => tool.name);
let last = {};
for (const [name, given] of order.calls) {
  // "$id" stands for the conversation of the call before.
  const args = Object.fromEntries(Object.entries(given).map(([k, v]) => [k, v === "$id" ? last.conversation_id : v]));
  const options = { onprogress: (one) => found.progress.push(one.message), resetTimeoutOnProgress: true };
  const result = await client.callTool({ name, arguments: args }, undefined, options);
  last = result.structuredContent ?? last;
  found.results.push(result);
}
if (client.getServerCapabilities().resources) {
  found.resources = (await client.listResources()).resources.map((one) => one.uri);
}
await client.close();
console.log(JSON.stringify(found));
